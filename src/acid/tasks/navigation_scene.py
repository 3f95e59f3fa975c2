"""Pictures of a navigation world from a robot's camera. MuJoCo only draws; it simulates nothing.

Shadows are painted into the ground's texture, where they cost nothing.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from acid.tasks.navigation_world import HALF, WALL, Colour, Thing, World
from acid.tasks.offscreen import Offscreen, draw_fast, mujoco

HORIZONTAL_FIELD = 99.0  # degrees
CAMERA_HEIGHT = 0.5  # m
CAMERA_AHEAD = 0.15  # m in front of the middle of the robot
CAMERA_DOWN = np.radians(5.0)  # below the horizon
_VERTICAL_FIELD = 2 * np.degrees(np.arctan(np.tan(np.radians(HORIZONTAL_FIELD) / 2) * 3 / 4))
_CORNER_WIDENING = 1 / (np.cos(CAMERA_DOWN) - np.sin(CAMERA_DOWN) * np.tan(np.radians(_VERTICAL_FIELD) / 2))
_HIDDEN_GROUP = 4  # a geom group that MuJoCo does not draw
_GROUND = HALF + 1.0  # m, half the side of the painted ground
_TEXELS = 768  # along the painted ground: 4 cm each

_XML = """
<mujoco>
  <statistic center="0 0 0" extent="10"/>
  <visual>
    <headlight ambient="{ambient}" diffuse="0.12 0.12 0.12" specular="0 0 0"/>
    <quality shadowsize="0" offsamples="0" numslices="10" numstacks="6" numquads="2"/>
    <map znear="0.008" zfar="20"/>
  </visual>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1="{zenith}" rgb2="{horizon}" width="64" height="384"/>
    <texture name="ground" type="2d" file="ground.png"/>
    <texture name="speckle" type="cube" builtin="flat" mark="random" random="0.35" rgb1="1 1 1" markrgb="0.55 0.55 0.55"
      width="32" height="192"/>
    <texture name="planks" type="cube" file="planks.png"/>
    <material name="ground" texture="ground" specular="0" shininess="0"/>
    <material name="leaves" texture="speckle" specular="0" shininess="0"/>
    <material name="planks" texture="planks" specular="0" shininess="0"/>
    <material name="plain" specular="0.1" shininess="0.1"/>
    {meshes}
  </asset>
  <worldbody>
    <light directional="true" castshadow="false" pos="0 0 20" dir="{sun_way}" diffuse="{sun}" specular="0.1 0.1 0.1"/>
    <camera name="robot" mode="fixed" pos="0 0 1" fovy="{field}"/>
    <geom type="box" size="150 150 0.1" pos="0 0 -0.13" rgba="{far_ground} 1" material="plain"/>
    <geom type="plane" size="{ground} {ground} 1" material="ground"/>
    {geoms}
  </worldbody>
</mujoco>
"""


class NavigationScene:
    """Draws one world, `height` pixels high and 4/3 of that wide."""

    def __init__(self, world: World, height: int) -> None:
        meshes: list[str] = []
        geoms = [*_backdrop(world), *_walls(world)]
        for thing in world.things:
            geoms += _DRAWN[thing.kind](thing, meshes)
        weather = world.weather
        xml = _XML.format(
            ambient=_text([weather.ambient] * 3),
            zenith=_text(weather.zenith),
            horizon=_text(weather.horizon),
            meshes="".join(meshes),
            sun_way=_text(-_towards_sun(world)),
            sun=_text(weather.sun),
            field=f"{_VERTICAL_FIELD:.9g}",
            far_ground=_text(_blend(world.grass, weather.horizon, 0.25)),
            ground=_GROUND,
            geoms="".join(geoms),
        )
        assets = {"ground.png": _png(paint_ground(world)), "planks.png": _png(_planks())}
        self._model = mujoco.MjModel.from_xml_string(xml, assets)
        draw_fast(self._model)
        self._data = mujoco.MjData(self._model)
        mujoco.mj_forward(self._model, self._data)  # geoms and lights, which never move
        self._places, self._bounds = self._data.geom_xpos.copy(), self._model.geom_rbound.copy()
        self._bounds[self._model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE] = np.inf
        self._offscreen = Offscreen(self._model, height, supersample=1, aspect=4 / 3)

    def draw(self, pose: np.ndarray) -> np.ndarray:
        """Pixels uint8 [height, height · 4/3, 3] from a robot at (x, y, yaw)."""
        x, y, yaw = (float(value) for value in pose)
        ahead = np.array([np.cos(yaw), np.sin(yaw), 0.0])
        right = np.array([ahead[1], -ahead[0], 0.0])
        up = np.cos(CAMERA_DOWN) * np.array([0, 0, 1.0]) + np.sin(CAMERA_DOWN) * ahead
        eye = np.array([x, y, CAMERA_HEIGHT]) + CAMERA_AHEAD * ahead
        self._model.geom_group[:] = np.where(self._in_view(eye, ahead, right), 0, _HIDDEN_GROUP)
        self._data.cam_xpos[0] = eye
        self._data.cam_xmat[0] = np.stack([right, up, np.cross(right, up)], axis=1).ravel()
        return self._offscreen.draw(self._data, 0)

    def _in_view(self, eye: np.ndarray, ahead: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Which geoms may be in the picture, [n]. Drawing only these takes a third of the time."""
        offset = self._places - eye
        depth, side = offset @ ahead, np.abs(offset @ right)
        half = np.arctan(np.tan(np.radians(HORIZONTAL_FIELD) / 2) * _CORNER_WIDENING)
        return side * np.cos(half) - depth * np.sin(half) <= self._bounds

    def close(self) -> None:
        self._offscreen.close()


def paint_ground(world: World) -> np.ndarray:
    """The ground from above, uint8 [_TEXELS, _TEXELS, 3]: grass, soil, paths and the shadows of things."""
    from PIL import Image, ImageDraw, ImageFilter

    rng = np.random.default_rng([0x6A55, world.seed])
    grass, soil = (255 * np.array(colour) for colour in (world.grass, world.soil))
    bare = np.clip((_noise(rng, 10) - 0.56) * 8, 0, 1)[..., None]  # where soil shows
    paths = Image.new("L", (_TEXELS, _TEXELS))
    pen = ImageDraw.Draw(paths)
    for _ in range(3):
        pen.line([tuple(corner) for corner in _path(rng)], fill=255, width=int(rng.integers(22, 40)), joint="curve")
    trodden = np.asarray(paths.filter(ImageFilter.GaussianBlur(3)), np.float64)[..., None] / 255
    picture = grass + (soil - grass) * np.maximum(bare * 0.7, trodden)
    picture *= (0.72 + 0.4 * _noise(rng, 24) + 0.22 * (_noise(rng, 200) - 0.5))[..., None]
    _plant_flowers(rng, picture)
    shadows = Image.new("L", (_TEXELS, _TEXELS))
    pen = ImageDraw.Draw(shadows)
    for thing in world.things:
        _cast(pen, thing, world)
    shade = np.asarray(shadows.filter(ImageFilter.GaussianBlur(2)), np.float64)[..., None] / 255
    return np.clip(picture * (1 - 0.55 * shade), 0, 255).astype(np.uint8)


def _plant_flowers(rng: np.random.Generator, picture: np.ndarray) -> None:
    """Draw patches on the ground, each in its own colour."""
    for _ in range(rng.integers(8, 14)):
        long, short, turn = rng.uniform(20, 60), rng.uniform(12, 30), rng.uniform(0, np.pi)
        reach = int(long) + 1
        top, left = rng.integers(0, _TEXELS - 2 * reach, 2)
        rows, columns = np.mgrid[-reach:reach, -reach:reach]
        along, across = (rows * np.cos(turn) + columns * np.sin(turn), columns * np.cos(turn) - rows * np.sin(turn))
        inside = ((along / long) ** 2 + (across / short) ** 2 < 1) & (rng.random(rows.shape) < 0.6)
        picture[top : top + 2 * reach, left : left + 2 * reach][inside] = 255 * rng.uniform(0.25, 0.95, 3)


def _path(rng: np.random.Generator) -> np.ndarray:
    """Corners [n, 2] in texels of a smooth way across the world."""
    turn, steps = rng.uniform(0, np.pi), np.linspace(-1.2, 1.2, 40)
    bend = rng.uniform(-0.4, 0.4) * np.sin(steps * rng.uniform(1, 3) + rng.uniform(0, 6)) + rng.uniform(-0.5, 0.5)
    x, y = steps * np.cos(turn) - bend * np.sin(turn), steps * np.sin(turn) + bend * np.cos(turn)
    return (np.stack([x, y], axis=1) + 1) / 2 * _TEXELS


def _cast(pen: Any, thing: Thing, world: World) -> None:
    """Draw a thing's shadow: its footprint, and the same where the sun casts its top."""
    way = -_towards_sun(world)
    reach = min(thing.height, 3.0) * np.hypot(way[0], way[1]) / -way[2]
    throw = reach * way[:2] / np.hypot(way[0], way[1])
    spread = thing.radius + (0.7 if thing.kind == "tree" else 0.0)
    for share in np.linspace(0, 1, 6):
        x, y = np.array(thing.place) + share * throw
        shrunk = spread * (1 - 0.6 * share) if thing.kind == "conifer" else spread
        if thing.kind == "tree" and share < 0.5:
            shrunk = thing.radius
        corners = [(dx * thing.box[0], dy * thing.box[1]) for dx, dy in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
        cosine, sine = np.cos(thing.yaw), np.sin(thing.yaw)
        outline = [_texel(x + cosine * a - sine * b, y + sine * a + cosine * b) for a, b in corners]
        if thing.box[0] > 0:
            pen.polygon(outline, fill=255)
        radius = shrunk / (2 * _GROUND) * _TEXELS
        centre = _texel(x, y)
        if radius > 0:
            pen.ellipse([centre[0] - radius, centre[1] - radius, centre[0] + radius, centre[1] + radius], fill=255)


def _texel(x: float, y: float) -> tuple[float, float]:
    """Column and row of a place in the picture of the ground."""
    return (x + _GROUND) / (2 * _GROUND) * _TEXELS, (_GROUND - y) / (2 * _GROUND) * _TEXELS


def _noise(rng: np.random.Generator, cells: int) -> np.ndarray:
    """Smooth noise from 0 to 1, [_TEXELS, _TEXELS], with this many hills along a side."""
    from PIL import Image

    coarse = Image.fromarray(rng.random((cells, cells), np.float32))
    return np.clip(np.asarray(coarse.resize((_TEXELS, _TEXELS), Image.Resampling.BICUBIC), np.float64), 0, 1)


def _planks() -> np.ndarray:
    """A light grey with darker seams, to be tinted, uint8 [64, 64, 3]."""
    picture = np.full((64, 64, 3), 245, np.uint8)
    picture[::8] = 160
    picture[1::8] = 205
    return picture


def _png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "png", compress_level=1)
    return written.getvalue()


def _backdrop(world: World) -> Iterator[str]:
    """Hills around the horizon and a few towers, so that directions look different."""
    rng = np.random.default_rng([0x4177, world.seed])
    for _ in range(14):
        angle, far = rng.uniform(-np.pi, np.pi), rng.uniform(55, 90)
        size = rng.uniform(8, 25), rng.uniform(8, 25), rng.uniform(4, 14)
        colour = _blend(_tint(rng, world.grass), world.weather.horizon, far / 160)
        yield _geom("ellipsoid", (far * np.cos(angle), far * np.sin(angle), -1), size, colour, yaw=angle)
    for _ in range(4):
        angle, far, tall = rng.uniform(-np.pi, np.pi), rng.uniform(28, 45), rng.uniform(4, 9)
        colour = tuple(rng.uniform(0.2, 0.9, 3))
        yield _geom("cylinder", (far * np.cos(angle), far * np.sin(angle), tall), (1.2, tall, 0), colour)


def _walls(world: World) -> Iterator[str]:
    """Each side has its own colour. Panels of two shades and uneven lengths show the position along it."""
    rng = np.random.default_rng([0x3A11, world.seed])
    for side, colour in enumerate(world.walls):
        angle = side * np.pi / 2
        cuts = np.concatenate([[-HALF - WALL], np.sort(rng.uniform(-HALF, HALF, 8)), [HALF + WALL]])
        for panel, (start, end) in enumerate(pairwise(cuts)):
            shade = _blend(colour, ((0.95,) * 3, (0.15,) * 3)[panel % 2], rng.uniform(0.1, 0.4))
            middle, half, tall = (start + end) / 2, (end - start) / 2, rng.uniform(0.4, 0.65)
            place = HALF * np.cos(angle) - middle * np.sin(angle), HALF * np.sin(angle) + middle * np.cos(angle), tall
            yield _geom("box", place, (WALL, half, tall), shade, yaw=angle, material="planks")


def _house(thing: Thing, meshes: list[str]) -> Iterator[str]:
    (half, deep), tall = thing.box, thing.height / 2
    yield _part(thing, "box", (0, 0, tall), (half, deep, tall), thing.colour, material="planks")
    ridge = 0.5 + thing.variety
    yield _shape(thing, "roof", meshes, (half + 0.2, deep + 0.25, ridge), thing.height, thing.accent)
    for side in (-1, 1):
        yield _part(thing, "box", (side * half * 0.5, -deep, 0.9), (0.35, 0.03, 0.9), thing.accent)
        yield _part(thing, "box", (-side * half * 0.5, deep, 1.3), (0.4, 0.03, 0.4), (0.15, 0.2, 0.3))
        yield _part(thing, "box", (side * half, 0, 1.3), (0.03, 0.45, 0.4), (0.9, 0.92, 0.85))


def _silo(thing: Thing, meshes: list[str]) -> Iterator[str]:
    yield _part(thing, "cylinder", (0, 0, thing.height / 2), (thing.radius, thing.height / 2, 0), thing.colour)
    yield _part(thing, "cylinder", (0, 0, 1.0), (thing.radius * 1.02, 0.35, 0), thing.accent)
    yield _shape(thing, "cone", meshes, (thing.radius * 1.1, thing.radius * 1.1, 1.0), thing.height, thing.accent)


def _fence(thing: Thing, meshes: list[str]) -> Iterator[str]:
    half, tall = thing.box[0], thing.height / 2
    for place in np.linspace(-half, half, 4):
        yield _part(thing, "box", (place, 0, tall), (0.07, 0.07, tall), thing.colour)
    for level in (0.45, 0.85):
        yield _part(thing, "box", (0, 0, thing.height * level), (half, 0.03, 0.09), thing.colour)


def _conifer(thing: Thing, meshes: list[str]) -> Iterator[str]:
    wide = thing.radius * 1.15
    yield _part(thing, "cylinder", (0, 0, 0.2), (0.13, 0.2, 0), (0.35, 0.24, 0.16))
    yield _shape(thing, "cone", meshes, (wide, wide, thing.height * 0.75), 0.3, thing.colour, "leaves")
    top = _blend(thing.colour, (1, 1, 1), 0.12)
    yield _shape(
        thing, "cone", meshes, (wide * 0.75, wide * 0.75, thing.height * 0.6), thing.height * 0.42, top, "leaves"
    )


def _tree(thing: Thing, meshes: list[str]) -> Iterator[str]:
    crown = 0.65 + 0.55 * thing.variety
    bark = (0.85, 0.84, 0.8) if thing.variety > 0.75 else (0.36, 0.25, 0.17)  # some are birches
    middle = thing.height - crown * 0.6
    yield _part(thing, "cylinder", (0, 0, middle / 2), (thing.radius * 0.8, middle / 2, 0), bark)
    yield _part(thing, "ellipsoid", (0, 0, middle), (crown, crown, crown * 0.8), thing.colour, material="leaves")
    light = _blend(thing.colour, (1, 1, 0.8), 0.15)
    place = (0.5 * crown, 0.1, middle + 0.4 * crown)
    yield _part(thing, "ellipsoid", place, (crown * 0.6, crown * 0.65, crown * 0.55), light, material="leaves")


def _rock(thing: Thing, meshes: list[str]) -> Iterator[str]:
    flat = thing.radius * (0.6 + 0.4 * thing.variety)
    size = (thing.radius, flat, thing.height * 0.8)
    yield _part(thing, "ellipsoid", (0, 0, thing.height * 0.2), size, thing.colour, material="leaves")


def _bush(thing: Thing, meshes: list[str]) -> Iterator[str]:
    size = (thing.radius, thing.radius * 0.9, thing.height * 0.6)
    yield _part(thing, "ellipsoid", (0, 0, thing.height * 0.4), size, thing.colour, material="leaves")


def _barrel(thing: Thing, meshes: list[str]) -> Iterator[str]:
    yield _part(thing, "cylinder", (0, 0, thing.height / 2), (thing.radius, thing.height / 2, 0), thing.colour)
    yield _part(thing, "cylinder", (0, 0, thing.height / 2), (thing.radius * 1.04, 0.12, 0), thing.accent)


def _sign(thing: Thing, meshes: list[str]) -> Iterator[str]:
    yield _part(thing, "cylinder", (0, 0, thing.height / 2), (0.06, thing.height / 2, 0), (0.5, 0.5, 0.5))
    board = (0.45, 0.05, 0.35) if thing.variety < 0.6 else (0.3, 0.05, 0.5)
    yield _part(thing, "box", (0, 0, thing.height), board, thing.colour)
    yield _part(thing, "box", (0, 0, thing.height), (board[0] * 0.6, 0.06, board[2] * 0.4), thing.accent)


def _bale(thing: Thing, meshes: list[str]) -> Iterator[str]:
    quaternion = f"{np.cos(thing.yaw / 2) * 0.5**0.5:.6g} {-np.sin(thing.yaw / 2) * 0.5**0.5:.6g} " + (
        f"{np.cos(thing.yaw / 2) * 0.5**0.5:.6g} {np.sin(thing.yaw / 2) * 0.5**0.5:.6g}"
    )
    place = _text((*thing.place, thing.radius))
    size = _text((thing.radius, 0.45))
    yield (
        f'<geom type="cylinder" pos="{place}" size="{size}" quat="{quaternion}" rgba="{_text(thing.colour)} 1" '
        'material="leaves"/>'
    )


_DRAWN = {
    "house": _house,
    "silo": _silo,
    "fence": _fence,
    "conifer": _conifer,
    "tree": _tree,
    "rock": _rock,
    "bush": _bush,
    "barrel": _barrel,
    "sign": _sign,
    "bale": _bale,
}


def _part(
    thing: Thing, shape: str, place: Sequence[float], size: Sequence[float], colour: Colour, *, material: str = "plain"
) -> str:
    """A geom at a place of the thing's own frame."""
    cosine, sine = np.cos(thing.yaw), np.sin(thing.yaw)
    x, y = thing.place[0] + cosine * place[0] - sine * place[1], thing.place[1] + sine * place[0] + cosine * place[1]
    return _geom(shape, (x, y, place[2]), size, colour, yaw=thing.yaw, material=material)


def _shape(
    thing: Thing,
    mesh: str,
    meshes: list[str],
    scale: Sequence[float],
    base: float,
    colour: Colour,
    material: str = "plain",
) -> str:
    """A scaled mesh at height `base` in the middle of the thing."""
    name, vertices = f"{mesh}{len(meshes)}", _cone() if mesh == "cone" else _ROOF
    meshes.append(f'<mesh name="{name}" vertex="{vertices}" scale="{_text(scale)}"/>')
    quaternion = f"{np.cos(thing.yaw / 2):.6g} 0 0 {np.sin(thing.yaw / 2):.6g}"
    place = _text((*thing.place, base))
    return (
        f'<geom type="mesh" mesh="{name}" pos="{place}" quat="{quaternion}" rgba="{_text(colour)} 1" '
        f'material="{material}"/>'
    )


def _geom(
    shape: str,
    place: Sequence[float],
    size: Sequence[float],
    colour: Sequence[float],
    *,
    yaw: float = 0.0,
    material: str = "plain",
) -> str:
    quaternion = f"{np.cos(yaw / 2):.6g} 0 0 {np.sin(yaw / 2):.6g}"
    return (
        f'<geom type="{shape}" pos="{_text(place)}" size="{_text(size)}" quat="{quaternion}" '
        f'rgba="{_text(colour)} 1" material="{material}"/>'
    )


_ROOF = "-1 -1 0 1 -1 0 -1 1 0 1 1 0 -1 0 1 1 0 1"


def _cone() -> str:
    angles = np.linspace(0, 2 * np.pi, 9)[:-1]
    return " ".join(f"{np.cos(angle):.4g} {np.sin(angle):.4g} 0" for angle in angles) + " 0 0 1"


def _towards_sun(world: World) -> np.ndarray:
    weather = world.weather
    flat = np.cos(weather.sun_elevation)
    return np.array(
        [flat * np.cos(weather.sun_azimuth), flat * np.sin(weather.sun_azimuth), np.sin(weather.sun_elevation)]
    )


def _tint(rng: np.random.Generator, colour: Colour) -> Colour:
    return tuple(np.clip(np.array(colour) + rng.uniform(-0.15, 0.15, 3), 0, 1))  # type: ignore[return-value]


def _blend(a: Sequence[float], b: Sequence[float], share: float) -> Colour:
    return tuple(float(x + (y - x) * share) for x, y in zip(a, b, strict=True))  # type: ignore[return-value]


def _text(values: Sequence[float] | np.ndarray) -> str:
    return " ".join(f"{float(value):.6g}" for value in values)
