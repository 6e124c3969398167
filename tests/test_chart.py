"""The Helm chart: what it makes of its values is what servers, Kubernetes and the command take."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from aiohttp import ClientSession
from pequod_server import ServerConfig
from pequod_server.cluster.membership import first_entry
from pequod_server.settings import variable
from typer.testing import CliRunner

from pequod.cli.app import app
from tests.peer.homes import running

CHART: Final = Path(__file__).parents[1] / "docs/deploy/helm/pequod"
#: What an operator has to say, and all that can be said.
LEAST: Final = ("cluster.etcd={etcd-0:2379}", "backing.secret=database")
MOST: Final = (
    *LEAST, "cluster.name=news", "cluster.user=pequod", "cluster.passwordSecret=etcd", "tls.secret=certificate",
    "access.text=[roles.web]", "access.tokenSecret=token", "metrics.serviceMonitor.enabled=true",
    "settings.traces=false", "settings.rows_max=1000000", "settings.memory_limit=2GiB",
    "homes.settings.slow_ms=0.5", "homes.replicas=3",
    "computes.drainSeconds=40", "homes.resources.limits.memory=3Gi", "computes.nodeSelector.disk=fast",
)  # fmt: skip
VALUES: Final = pytest.mark.parametrize("values", [LEAST, MOST], ids=["least", "most"])
#: Values that are not the chart's to name.
OPEN: Final = ("settings", "labels", "annotations", "resources", "nodeSelector", "affinity")
#: The names that Kubernetes gives a pod.
POD: Final = {"POD_NAME": "twip-homes-1", "POD_IP": "10.0.0.7", "POD_NUMBER": "1"}


def helm(*arguments: str, values: tuple[str, ...] = LEAST) -> subprocess.CompletedProcess[str]:
    program = shutil.which("helm")
    if program is None:
        pytest.skip("helm is not installed here: `make test-shelf` builds it with Go, in minutes, and runs these tests")
    sets = [part for value in values for part in ("--set", value)]
    return subprocess.run([program, *arguments, *sets], capture_output=True, text=True, timeout=120, check=False)


@cache
def made(values: tuple[str, ...]) -> str:
    """Return what the chart makes of values."""
    done = helm("template", "twip", str(CHART), "--kube-version", "1.31.0", values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(values: tuple[str, ...]) -> dict[tuple[str, str], Any]:
    """Return the objects of Kubernetes by kind and name."""
    found = [one for one in yaml.safe_load_all(made(values)) if one]
    named = {(one["kind"], one["metadata"]["name"]): one for one in found}
    assert len(named) == len(found)
    return named


def servers(values: tuple[str, ...]) -> Iterator[tuple[str, Any, Any]]:
    """Yield for homes and computes their name, the pod and its container."""
    found = objects(values)
    for kind, name in (("StatefulSet", "twip-homes"), ("Deployment", "twip-computes")):
        pod = found[kind, name]["spec"]["template"]
        (container,) = pod["spec"]["containers"]
        yield name, pod, container


def environment(values: tuple[str, ...], name: str, container: Any) -> dict[str, str]:
    """Return the variables of a container, as Kubernetes makes them."""
    (source,) = container["envFrom"]
    assert source["configMapRef"]["name"] == name
    variables = dict(objects(values)["ConfigMap", name]["data"])
    for one in container["env"]:
        value = one.get("value", POD.get(one["name"], "postgresql://db/twip"))
        variables[one["name"]] = re.sub(r"\$\((\w+)\)", lambda match: variables[match[1]], value)
    return variables


@VALUES
def test_helm_finds_nothing_to_say(values: tuple[str, ...]) -> None:
    done = helm("lint", "--strict", str(CHART), "--kube-version", "1.31.0", values=values)
    assert done.returncode == 0, done.stdout + done.stderr


@VALUES
def test_kubernetes_takes_the_objects(values: tuple[str, ...]) -> None:
    how = "the schemas of Kubernetes are not here: pip install kubernetes-validate, as `make test-shelf` does"
    kubernetes = pytest.importorskip("kubernetes_validate", reason=how)
    for (kind, _), one in objects(values).items():
        # That of the operator of Prometheus is not Kubernetes's own.
        if kind != "ServiceMonitor":
            kubernetes.validate(one, "1.31", strict=True)


@VALUES
def test_the_variables_are_settings_that_go_together(values: tuple[str, ...]) -> None:
    names = {variable(name): name for name in ServerConfig.model_fields}
    for name, _, container in servers(values):
        variables = environment(values, name, container)
        settings: dict[str, Any] = {names[one]: value for one, value in variables.items() if one in names}
        assert len(settings) == sum(one.startswith("PEQUOD_") for one in variables)
        config = ServerConfig(**settings)
        entry = first_entry(config)
        assert sorted(entry.roles) == [name.removeprefix("twip-").removesuffix("s")]
        assert entry.id == "twip-homes-1", "the pod's own"
        assert entry.address.endswith(":7744")
        assert config.insecure is (config.tls_key is None)
        assert bool(config.backing) == (name == "twip-homes")
        files = [config.tls_key, config.tls_certificate, config.access_file, config.cluster_password]
        mounts = [one["mountPath"] for one in container.get("volumeMounts", ())]
        assert all(file is None or str(file.parent) in mounts for file in (*files, config.backing_token))
        if values is MOST:
            assert (config.rows_max, config.cluster) == (1_000_000, "etcd:etcd-0:2379/news")
            assert None not in files


def test_each_home_has_a_feed_and_an_address_of_its_own() -> None:
    ((name, _, container), _) = servers(LEAST)
    variables = environment(LEAST, name, container)
    assert variables["PEQUOD_BACKING_FEED_NAME"] == "pequod_1"
    assert variables["PEQUOD_CLUSTER_ADDRESS"] == "twip-homes-1.twip-homes.default.svc:7744"
    assert objects(LEAST)["StatefulSet", "twip-homes"]["spec"]["serviceName"] == "twip-homes"
    assert objects(LEAST)["Service", "twip-homes"]["spec"]["clusterIP"] == "None"


@VALUES
async def test_servers_answer_the_probes(values: tuple[str, ...]) -> None:
    async with running(metrics="127.0.0.1:0") as server, ClientSession() as session:
        for _, _, container in servers(values):
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                asked = container[probe]["httpGet"]
                assert ports[asked["port"]] == 9464
                async with session.get(f"{server.server.instruments.url}{asked['path']}") as reply:
                    assert reply.status == 200, probe


@VALUES
def test_a_compute_drains_before_it_stops(values: tuple[str, ...]) -> None:
    _, (name, pod, container) = servers(values)
    shell, option, script = container["lifecycle"]["preStop"]["exec"]["command"]
    assert (shell, option) == ("sh", "-c")
    drain, _, sleep = script.partition("; ")
    words = shlex.split(drain)
    assert words[:3] == ["timeout", "10", "pequod"]
    known = {f"${one}": "x" for one in environment(values, name, container)} | {"$PEQUOD_CLUSTER": "etcd:127.0.0.1:1/x"}
    done = CliRunner().invoke(app, [known.get(word, word) for word in words[3:]])
    assert done.exit_code == 4, "nobody answers there, and the command is right"
    slept_s = int(sleep.removeprefix("sleep "))
    assert pod["spec"]["terminationGracePeriodSeconds"] > 10 + slept_s + ServerConfig().drain_s + 10


@VALUES
def test_the_commands_of_the_setup_are_there(values: tuple[str, ...]) -> None:
    (job,) = [one for (kind, _), one in objects(values).items() if kind == "Job"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (script,) = container["args"]
    homes = objects(values)["StatefulSet", "twip-homes"]["spec"]["replicas"]
    assert f"$(seq 0 {homes - 1})" in script
    given = {one["name"] for one in container["env"]}
    assert set(re.findall(r"\$(PEQUOD_\w+)", script)) <= given
    known = {"$PEQUOD_BACKING": "postgresql://nobody@127.0.0.1:1/x", "$PEQUOD_CLUSTER": "etcd:127.0.0.1:1/x"}
    commands = re.findall(r"^ *pequod (.*?)(?: \|\| test \$\? = 3)?$", script, re.MULTILINE)
    assert [command.split()[:2] for command in commands] == [
        ["backing", "install"], ["cluster", "init"], ["cluster", "add-home"],
    ]  # fmt: skip
    for command in commands:
        done = CliRunner().invoke(app, [known.get(word, word) for word in shlex.split(command.replace("$number", "0"))])
        assert done.exit_code == 4, done.output


@VALUES
def test_labels_find_the_pods(values: tuple[str, ...]) -> None:
    found = objects(values)
    pods = {name: pod["metadata"]["labels"] for name, pod, _ in servers(values)}
    wanted = {
        ("Service", "twip"): {"twip-computes"},
        ("Service", "twip-homes"): {"twip-homes"},
        ("Service", "twip-metrics"): {"twip-homes", "twip-computes"},
    }
    for place, names in wanted.items():
        if place in found:
            selector = found[place]["spec"]["selector"].items()
            assert {name for name, labels in pods.items() if selector <= labels.items()} == names
    for name, labels in pods.items():
        budget = found["PodDisruptionBudget", name]["spec"]["selector"]["matchLabels"]
        assert budget.items() <= labels.items()
        assert "checksum/settings" in str(next(pod for one, pod, _ in servers(values) if one == name)["metadata"])
    if values is MOST:
        monitor = found["ServiceMonitor", "twip"]["spec"]["selector"]["matchLabels"]
        matched = [name for (kind, name), one in found.items() if kind == "Service"
                   and monitor.items() <= one["metadata"]["labels"].items()]  # fmt: skip
        assert matched == ["twip-metrics"]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (LEAST[1:], "etcd"),
        (LEAST[:1], "secret"),
        ((*LEAST, "computes.replica=3"), "replica"),
        ((*LEAST, "settings.Rows=3"), "Rows"),
        ((*LEAST, "backing.mode=look-aside"), "mode"),
        ((*LEAST, "homes.replicas=0"), "replicas"),
    ],
)
def test_values_that_are_wrong_are_named(values: tuple[str, ...], reason: str) -> None:
    done = helm("template", "twip", str(CHART), "--kube-version", "1.31.0", values=values)
    assert done.returncode != 0
    assert reason in done.stderr


def test_the_schema_has_each_value_and_no_others() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    del schema["properties"]["global"]

    def paths(given: Any, before: str = "") -> set[str]:
        if not isinstance(given, dict) or before.rpartition(".")[2] in OPEN:
            return {before}
        return {path for name, value in given.items() for path in paths(value, f"{before}.{name}")}

    def known(one: Any, before: str = "") -> set[str]:
        if "properties" not in one:
            return {before}
        return {path for name, part in one["properties"].items() for path in known(part, f"{before}.{name}")}

    assert paths(yaml.safe_load((CHART / "values.yaml").read_text())) == known(schema)
