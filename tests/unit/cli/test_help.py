"""Help texts: complete sentences, a default for every option, and names that a user without the sources can look up."""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
import typer.models
from helpers.docs_scripts import DOCS
from helpers.looped import looped

from embtrain import cli
from embtrain.cli import commands, entry_point, options
from embtrain.experiment.comparison.grid import Grid

COLUMNS = 80


def known(group: Any = None, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command and group with the words that call it."""
    for name, command in (group or typer.main.get_command(commands.app)).commands.items():
        yield f"{path}{name}", command
        if hasattr(command, "commands"):
            yield from known(command, f"{path}{name} ")


COMMANDS = dict(known())


@pytest.mark.parametrize("group", ["", *(name for name, command in COMMANDS.items() if hasattr(command, "commands"))])
def test_each_command_is_described_by_one_complete_line(monkeypatch: pytest.MonkeyPatch,
                                                        capsys: pytest.CaptureFixture[str], group: str) -> None:
    monkeypatch.setattr(sys, "argv", ["embtrain", *group.split(), "--help"])
    assert cli.run() == 0
    lines = capsys.readouterr().out.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in lines] == [
        name.removeprefix(f"{group} ") for name in COMMANDS if name.rpartition(" ")[0] == group]
    assert [line for line in lines if not line.endswith(".") or line.endswith("...") or len(line) > COLUMNS] == []


def without_default(option: Any) -> bool:
    """Whether the help of an option lacks its default. A flag is off, and a repeatable option empty."""
    return not (option.is_flag or option.required or option.multiple or (option.default is not None and
                option.show_default) or re.search(r"\(default: .+?\)", option.help or ""))


@looped("name", [name for name, command in COMMANDS.items() if not hasattr(command, "commands")])
def test_every_option_has_a_description_and_shows_its_default(name: str) -> None:
    listed = [option for option in COMMANDS[name].params if option.param_type_name == "option"]
    assert [option.name for option in listed if not (option.help or "").rstrip(")").endswith(".")] == []
    assert [option.name for option in listed if without_default(option)] == []


@looped("name", [name for name, command in COMMANDS.items() if not hasattr(command, "commands")])
def test_an_option_whose_placeholder_is_its_name_declares_that_name(name: str) -> None:
    """typer 0.27 takes `--DEVICE` from metavar="DEVICE" of a parameter `device` that declares no name."""
    hints = typing.get_type_hints(COMMANDS[name].callback, include_extras=True)
    infos = [(parameter, info) for parameter, hint in hints.items() for info in getattr(hint, "__metadata__", ())]
    assert [parameter for parameter, info in infos if isinstance(info, typer.models.OptionInfo)
            and str(info.metavar).lower() == parameter and info.default is ...] == []  # the first name given


def test_every_option_of_a_corpus_names_the_command_that_lists_only_data() -> None:
    helps = {name: parameter.help for name, command in COMMANDS.items() for parameter in command.params
             if parameter.name == "corpus" and name != "bench"}
    assert {"fit", "compare", "continue"} <= helps.keys()
    assert [name for name, text in helps.items() if "a name that `embtrain data list` prints" not in text] == []


@looped("name", [name for name, command in COMMANDS.items() if not hasattr(command, "commands")])
def test_the_reader_of_a_path_reports_missing_permission(name: str) -> None:
    """The check of typer has code 2 and words of its own."""
    hints = typing.get_type_hints(COMMANDS[name].callback, include_extras=True)
    infos = [(parameter, info) for parameter, hint in hints.items() for info in getattr(hint, "__metadata__", ())
             if "Path" in str(hint)]
    assert [parameter for parameter, info in infos if info.readable] == []


@looped("name", [name for name, command in COMMANDS.items() if not hasattr(command, "commands")])
def test_options_have_values_with_names_instead_of_types_of_python(name: str) -> None:
    """`--seeds N`, not `--seeds <int range>`."""
    options = [option for option in COMMANDS[name].params if option.param_type_name == "option" and not option.is_flag]
    assert [option.name for option in options if option.metavar is None] == []


@pytest.mark.parametrize(("name", "defaults", "stored"), [
    ("compare", "its grid as default", Grid.model_fields.keys() | {"negatives", "model", "epochs", "dim", "overrides"}),
    ("reproduce", "its corpus, seeds and settings as defaults", {"corpus", "seeds", "overrides"})])
def test_options_that_an_existing_comparison_does_not_store_are_documented(
        name: str, defaults: str, stored: set[str]) -> None:
    helps = {option.name: option.help for option in COMMANDS[name].params if option.param_type_name == "option"}
    assert helps["out"].endswith(f"there, with {defaults}.")
    sentence = (DOCS / "how-to" / "runs.md").read_text().partition("`comparison.yaml` does not store")[2]
    repeated = set(re.findall(r"`--([\w-]+)`", sentence.partition(".")[0]))
    per_call = {"config", "out", "retry_failed", "quiet", "as_json", "help"}
    assert {key.replace("_", "-") for key in helps.keys() - stored - per_call} <= repeated


def test_the_baseline_of_an_existing_comparison_is_the_default() -> None:
    (text,) = [option.help for option in COMMANDS["compare"].params if option.name == "baseline"]
    assert text.endswith("(default: the one stored in --out, else the first).")


def test_an_option_without_a_default_is_found() -> None:
    option = next(option for option in COMMANDS["fit"].params if option.name == "seed")
    option.help, before = "Seed.", option.help
    assert without_default(option)
    option.help = before


@looped("name", list(COMMANDS))
def test_no_help_names_a_folder_of_the_sources(name: str) -> None:
    texts = [COMMANDS[name].help or "", *(getattr(option, "help", None) or "" for option in COMMANDS[name].params)]
    assert [text for text in texts if re.search(r"configs/|corpora/|evals/|embtrain\.\w", text)] == []


@pytest.mark.parametrize(("option", "hint"), [
    ("--window", "--set text.window=VALUE or --set walks.window=VALUE"), ("--lr", "--set train.lr=VALUE"),
    ("--track-until", "--set train.track_until=VALUE"), ("--train.lr", "--set train.lr=VALUE"),
    ("--k", "--set negatives.k=VALUE"), ("--vector-size", "--set model.dim=VALUE"),
    ("--learning_rate", "--set train.lr=VALUE")])
def test_an_unknown_option_named_like_a_key_gets_its_set(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str, hint: str) -> None:
    monkeypatch.setattr(sys, "argv", ["embtrain", "fit", option, "3"])
    assert cli.run() == 2
    error = capsys.readouterr().err
    assert f"; to set that key: {hint} (see embtrain fit --help)\n" in error and error.count("\n") == 1


def test_a_command_of_another_program_gets_the_name_of_ours(monkeypatch: pytest.MonkeyPatch,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    others = entry_point.OTHER_NAMES
    assert set(others.values()) <= COMMANDS.keys() and not others.keys() & COMMANDS.keys()
    monkeypatch.setattr(sys, "argv", ["embtrain", "train", "--corpus", "my.txt"])
    assert cli.run() == 2
    assert capsys.readouterr().err.endswith(" command 'train'. Did you mean 'fit'? (see embtrain --help)\n")


def test_data_without_its_option_get_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["embtrain", "fit", "my.txt"])
    assert cli.run() == 2
    assert "(my.txt); give your data with --corpus (see embtrain fit --help)\n" in capsys.readouterr().err


def test_other_unknown_options_get_no_hint(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert options.key_hint("--nosuch") == options.key_hint("") == ""
    monkeypatch.setattr(sys, "argv", ["embtrain", "resume", "--lr", "3"])  # which has no --set
    assert cli.run() == 2
    assert "--set" not in capsys.readouterr().err


def test_short_options_are_sets_that_come_first() -> None:
    assert options.short_sets(None, None) == {}
    assert options.short_sets(3, 50) == {"train.epochs=3": "--epochs 3", "model.dim=50": "--dim 50"}
