"""The scene as text, to be changed in the browser."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dropsim.apps.viewer.commands import do
from dropsim.apps.viewer.loop import Commands
from dropsim.apps.viewer.session import Session
from dropsim.priors.named import SHIPPED
from dropsim.scene.files import SOMERSAULT, Setup
from dropsim.scene.files.reading import FILES, parse_tables, setup_of
from dropsim.scene.files.writing import scene_text

if TYPE_CHECKING:
    import viser

MAX_LENGTH = 20_000
"""Characters of a scene that is typed."""
NAMES = (SOMERSAULT, *SHIPPED)
"""Values of keys for files that name none."""


def typed_scene(text: str) -> Setup:
    """Read a scene that somebody typed in a browser. It names no files: they would be the server's."""
    remedy = "start `dropsim view` with a scene file instead"
    if len(text) > MAX_LENGTH:
        raise ValueError(f"a scene that is typed has at most {MAX_LENGTH} characters: {remedy}")
    tables = parse_tables(text, "the scene")
    for table in tables:
        for key in ("file", *FILES) if isinstance(table.values, Mapping) else ():
            if key in table.values and table.values[key] not in NAMES:
                raise ValueError(f"{table.where(key)}{key} names a file, which a browser may not: {remedy}")
    setup = setup_of(tables, Path(), "edited")
    counts = {
        "people": (len(setup.scene.people), 9),
        "elements and steps of stairs": (sum(getattr(e, "num_steps", 1) for e in setup.scene.elements), 60),
        "iterations": (setup.simulator.num_iterations, 20),
        "samples": (setup.simulator.num_samples or 1, 256),
    }
    for name, (count, most) in counts.items():
        if count > most:
            raise ValueError(f"a scene that is typed has at most {most} {name}, not {count}: {remedy}")
    return setup


def edit_scene(client: "viser.ClientHandle", commands: Commands) -> None:
    """Show a client the scene, with what was done to it, as text to change."""

    def show(session: Session) -> None:
        with client.gui.add_modal("The scene, as a file has it") as modal:
            text = client.gui.add_text("TOML", scene_text(session.played_setup(), Path()), multiline=True)
            start, leave = client.gui.add_button("Start it"), client.gui.add_button("Leave it")

        def load(session: Session) -> None:
            """Start it, and close the text only then: whoever mistyped goes on with it."""
            do(session, "load", typed_scene(str(text.value)))
            modal.close()

        async def started(_: object) -> None:
            commands.put(load)

        async def left(_: object) -> None:
            modal.close()

        start.on_click(started)
        leave.on_click(left)

    commands.put(show)
