"""ACID as a policy of LeRobot, which finds packages of this name by itself."""

from lerobot_policy_acid.configuration_acid import AcidConfig
from lerobot_policy_acid.modeling_acid import AcidPolicy

__all__ = ["AcidConfig", "AcidPolicy"]
