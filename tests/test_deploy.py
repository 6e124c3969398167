"""The files for operators: the systemd unit, the container file and its settings fit the command and the package."""

import asyncio
import configparser
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from pequod_server import ServerConfig
from pequod_server.cluster.membership import first_entry
from pequod_server.settings import load, variable
from typer.testing import CliRunner

from pequod.cli.app import app
from tests.peer.homes import running

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "docs/deploy"


def test_the_unit_starts_the_command_and_gives_it_time_to_drain() -> None:
    unit = configparser.ConfigParser(strict=True, interpolation=None, comment_prefixes=("#",))
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(DEPLOY / "pequod.service")
    service = unit["Service"]
    program, command, option, file = shlex.split(service["ExecStart"])
    assert (Path(program).name, command, option) == ("pequod", "serve", "--config")
    assert file in (DEPLOY / "pequod.service").read_text().split("[Unit]")[0], "the comment says how to make it"
    assert int(service["TimeoutStopSec"]) > ServerConfig().drain_s
    assert int(service["LimitNOFILE"]) > ServerConfig().connections_max
    assert CliRunner().invoke(app, ["serve", "--config", "/nowhere"]).exit_code == int(
        service["RestartPreventExitStatus"]
    )


def test_the_unit_outlasts_a_database_that_is_away() -> None:
    text = (DEPLOY / "pequod.service").read_text()
    facts = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    # systemd's defaults: five starts within ten seconds, and 0.1 s between them.
    interval_s, burst = float(facts.get("StartLimitIntervalSec", 10)), int(facts.get("StartLimitBurst", 5))
    pause_s = float(facts.get("RestartSec", 0.1))
    assert interval_s == 0 or pause_s * burst > interval_s, "it is started again however long the database is away"
    assert pause_s >= 1, "a server that cannot start takes a second of a core for each try"
    assert facts["Restart"] == "on-failure"
    assert facts["Type"] == "notify", "systemd waits until it serves"


def test_the_unit_brings_what_its_user_cannot_read() -> None:
    text = (DEPLOY / "pequod.service").read_text()
    assert "DynamicUser=yes" in text
    assert re.search(r"^EnvironmentFile=-/etc/pequod/environment$", text, re.MULTILINE)
    assert re.search(r"^#?LoadCredential=", text, re.MULTILINE)
    assert "PGPASSFILE=" in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    # As it stands, and with what it leaves to choose.
    text = (DEPLOY / "pequod.service").read_text().replace("/opt/pequod/bin/pequod", "/bin/true")
    for name, content in (("plain", text), ("full", re.sub(r"^#(?=[A-Z]\w+=)", "", text, flags=re.MULTILINE))):
        unit = tmp_path / f"{name}.service"
        unit.write_text(content)
        done = subprocess.run(
            ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), content


def test_the_container_file_copies_what_the_package_is_made_of() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    copied = [word for line in lines if re.match(r"COPY (?!--from)", line) for word in line.split()[1:-1]]
    assert all((ROOT / path).exists() for path in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {package.split("/")[0] for package in wheel["packages"]}
    needed.add(wheel["hooks"]["custom"].get("path", "hatch_build.py"))
    assert {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"], *needed} <= set(
        copied
    )


def test_the_container_serves_its_settings_on_the_exposed_port() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    (source, target) = re.findall(r"^COPY (\S+\.toml) (\S+)$", text, re.MULTILINE)[0]
    assert f"PEQUOD_CONFIG={target}" in text
    (port,) = re.findall(r"^EXPOSE (\d+)$", text, re.MULTILINE)
    assert load(ROOT / source).config == ServerConfig(listen=f"0.0.0.0:{port}", insecure=True)
    command = [
        word for line in re.findall(r"^(?:ENTRYPOINT|CMD) (.*)$", text, re.MULTILINE) for word in json.loads(line)
    ]
    assert command == ["pequod", "serve"]


async def test_the_single_server_keeps_its_data_in_the_volume() -> None:
    (service,) = yaml.safe_load((DEPLOY / "single.compose.yaml").read_text())["services"].values()
    names = {variable(name): name for name in ServerConfig.model_fields}
    given = {names[name]: value for name, value in service["environment"].items()}
    config = ServerConfig(**load(DEPLOY / "container.toml").config.model_dump() | given)
    (volume,) = service["volumes"]
    assert config.data is not None
    assert str(config.data).startswith(volume.partition(":")[2])
    assert int(service["stop_grace_period"].removesuffix("s")) > config.drain_s
    inside = {port.rpartition(":")[2] for port in service["ports"]}
    assert inside == {config.listen.rpartition(":")[2], config.metrics.rpartition(":")[2]}
    assert all(port.startswith("127.0.0.1:") for port in service["ports"]), "in plain text for this machine alone"
    _, program, *command = service["healthcheck"]["test"]
    assert program == "pequod"
    async with running() as server:
        done = await asyncio.to_thread(CliRunner().invoke, app, [*command, "--target", server.address])
    assert done.exit_code == 0, done.output


def test_the_settings_of_the_cluster_file_are_there_and_go_together() -> None:
    text = (ROOT / "docs/deploy/cluster.compose.yaml").read_text()
    names = {variable(name): name for name in ServerConfig.model_fields}
    parts = text.split("\nx-")[1:]
    common = {
        part.partition(":")[0]: dict(re.findall(r'^  (PEQUOD_\w+): "?(.*?)"?$', part, re.MULTILINE)) for part in parts
    }
    servers = re.findall(r"^    environment: \{<<: \*(\w+), (PEQUOD_.*)\}$", text, re.MULTILINE)
    assert len(servers) == 4
    for kind, own in servers:
        settings = common[kind] | dict(re.findall(r'(PEQUOD_\w+): "?([^",]+)"?', own))
        config = ServerConfig(**{names[name]: value for name, value in settings.items()})
        assert bool(config.backing) == (kind == "home")
        entry = first_entry(config)
        assert entry.id == f"{entry.address.partition(':')[0]}-7744"
        assert sorted(entry.roles) == [kind]
