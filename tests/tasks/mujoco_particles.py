"""The same pushes with MuJoCo's bodies: a chain of capsules, and balls that do not turn. To compare with only."""

from acid.tasks.offscreen import mujoco  # isort: skip  (chooses how to draw before MuJoCo is imported)

import numpy as np

from acid.tasks.deformable import Granular, Rope
from acid.tasks.particles import LOWERING

TIMESTEP = 0.002
SETTLING = 0.5
LINKS = 25

_XML = """
<mujoco>
  <option timestep="{timestep}" gravity="0 0 -9.8" integrator="implicitfast" cone="elliptic"/>
  <default><geom condim="3" friction="{friction} 0 0" solref="0.01 1"/></default>
  <worldbody>
    <geom type="plane" size="20 20 1"/>
    {bodies}
    <body name="pusher" pos="{x} {y} 0.5" euler="0 0 {degrees}">
      <joint name="drive" type="slide" axis="1 0 0"/><joint name="lift" type="slide" axis="0 0 1"/>
      <geom {pusher} mass="1000" friction="{pusher_friction} 0 0" priority="1"/>
    </body>
  </worldbody>
  <contact><exclude body1="pusher" body2="world"/></contact>
</mujoco>
"""


def _simulate(bodies, pusher, physics, action):
    """The model and its data after the push, settled."""
    x0, y0, x1, y1 = action
    length = np.hypot(x1 - x0, y1 - y0)
    xml = _XML.format(
        timestep=TIMESTEP, friction=physics.sliding_friction, bodies=bodies, pusher=pusher, x=x0, y=y0,
        degrees=np.degrees(np.arctan2(y1 - y0, x1 - x0)), pusher_friction=physics.pusher_friction,
    )  # fmt: skip
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    drive, lift = (int(model.joint(name).dofadr[0]) for name in ("drive", "lift"))
    for step in range(round((length / physics.pusher_speed + LOWERING + SETTLING) / TIMESTEP)):
        done = min(step * TIMESTEP * physics.pusher_speed, length)
        data.qpos[drive], data.qvel[drive] = done, physics.pusher_speed if done < length else 0
        data.qpos[lift], data.qvel[lift] = (0 if done < length else 5), 0
        mujoco.mj_step(model, data)
    return model, data


def push_grains(positions, radii, action):
    """Grains [P, 3] after the push."""
    physics = Granular.physics
    drag = 1 / physics.substep * (1 - physics.damping)
    bodies = "".join(
        f'<body name="grain{i}" pos="{x} {y} {z}">'
        + "".join(f'<joint type="slide" axis="{axis}" damping="{drag}"/>' for axis in ("1 0 0", "0 1 0", "0 0 1"))
        + f'<geom type="sphere" size="{radius}" mass="1"/></body>'
        for i, ((x, y, z), radius) in enumerate(zip(positions, radii, strict=True))
    )
    board = f'type="box" size="{physics.pusher_along} {physics.pusher_across} 0.49"'
    _, data = _simulate(bodies, board, physics, action)
    return np.stack([data.body(f"grain{i}").xpos.copy() for i in range(len(radii))])


def push_rope(action):
    """Points [51, 3] of a rope that lay straight along x, after the push. It has no stiffness against bending."""
    physics = Rope.physics
    link = Rope.physics.bond * (Rope.particles - 1) / LINKS
    chain = ""
    for i in range(LINKS):
        first = '<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/><joint type="slide" axis="0 0 1"/>'
        place = f"{-LINKS * link / 2} 0 {Rope.radius}" if i == 0 else f"{link} 0 0"
        chain += f'<body name="link{i}" pos="{place}">' + (first if i == 0 else "")
        chain += '<joint type="hinge" axis="0 0 1" damping="0.001"/>'
        chain += f'<geom type="capsule" fromto="0 0 0 {link} 0 0" size="{Rope.radius}" mass="2"/>'
    cylinder = f'type="cylinder" size="{physics.pusher_rounding} 0.49"'
    _, data = _simulate(chain + "</body>" * LINKS, cylinder, physics, action)
    bodies = [data.body(f"link{i}") for i in range(LINKS)]
    joints = [body.xpos.copy() for body in bodies]
    joints.append(bodies[-1].xpos + link * bodies[-1].xmat.reshape(3, 3)[:, 0])
    corners = np.stack(joints)
    wanted, known = np.linspace(0, LINKS, Rope.particles), np.arange(LINKS + 1)
    return np.stack([np.interp(wanted, known, corners[:, k]) for k in range(3)], 1)
