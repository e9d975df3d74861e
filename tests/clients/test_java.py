"""clients/java: its code is generated and compiled, its example calls a server, pom.xml fits."""

import os
import subprocess
from xml.etree import ElementTree

import pytest
import yaml

from tandem.client.testing import FakeServer
from tests.support.clients.debian import JARS, are_installed, program, with_programs
from tests.support.clients.generated_code import ROOT, generate
from tests.support.clients.search_example import printed, refusing_server, run_example

FOLDER = ROOT / "clients/java"
# What Maven finds by itself: gRPC with its transport, protobuf, and what these need.
NAMES = [
    *("grpc-api", "grpc-context", "grpc-core", "grpc-netty", "grpc-protobuf", "grpc-protobuf-lite"),
    *("grpc-stub", "protobuf", "guava", "perfmark-api", "geronimo-annotation-1.3-spec"),
    *("netty-buffer", "netty-codec", "netty-codec-http", "netty-codec-http2", "netty-codec-socks"),
    *("netty-common", "netty-handler", "netty-handler-proxy", "netty-resolver", "netty-transport"),
    "netty-transport-native-unix-common",
]
LIBRARIES = [JARS / f"{name}.jar" for name in NAMES]
# Of a process that is over before the optimising compiler pays: half of the time.
BRIEF = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
MAVEN = {"m": "http://maven.apache.org/POM/4.0.0"}

pytestmark = pytest.mark.xdist_group("clients-java")
needs_java = pytest.mark.skipif(
    not are_installed("java", "javac", "protoc", "grpc_java_plugin")
    or not all(path.exists() for path in LIBRARIES),
    reason="NOT CHECKED: the Java client, which needs openjdk-17-jdk-headless, libgrpc-java, "
    "libprotobuf-java, libnetty-java, libperfmark-java, libguava-java, "
    "libgeronimo-annotation-1.3-spec-java, protobuf-compiler and "
    "protobuf-compiler-grpc-java-plugin of Debian 12",
)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Generates and compiles all with Debian's packages, and returns the example's command."""
    generated, classes = (tmp_path_factory.mktemp(name) for name in ("generated", "classes"))
    generate("java", generated)
    class_path = os.pathsep.join([str(classes), *map(str, LIBRARIES)])
    sources = [*generated.rglob("*.java"), FOLDER / "examples/Search.java"]
    options = ["--release", text("m:properties/m:maven.compiler.release"), "-proc:none"]
    subprocess.run(
        [
            str(program("javac")),
            *(f"-J{each}" for each in BRIEF),
            *options,
            "-cp",
            class_path,
            "-d",
            classes,
            *sources,
        ],
        check=True,
        timeout=280,
    )
    return [str(program("java")), *BRIEF, "-cp", class_path, "Search"]


@needs_java
def test_the_example_stores_searches_and_reads_an_error(example: list[str]) -> None:
    with FakeServer() as server:
        ended = run_example([*example, server.address], FOLDER)

    assert ended.returncode == 0, ended.stderr
    expected = printed("SEARCH_PHASE_RETRIEVED", "SEARCH_PHASE_FINAL", "NOT_FOUND")
    assert ended.stdout.splitlines() == expected


@needs_java
def test_the_example_sends_its_token_and_ends_with_the_servers_error(example: list[str]) -> None:
    with refusing_server() as (address, calls):
        ended = run_example([*example, address], FOLDER, with_programs(TANDEM_TOKEN="tk-1"))
        run_example([*example, address], FOLDER, with_programs(TANDEM_TOKEN=""))

    assert calls.tokens == ["Bearer tk-1", None]
    assert ended.returncode == 1
    assert "UNIMPLEMENTED" in ended.stderr


@needs_java
def test_the_pom_has_the_versions_that_are_tested_here() -> None:
    """Debian's files have them in their names."""
    assert (JARS / f"grpc-stub-{text('m:properties/m:grpc.version')}.jar").exists()
    assert (JARS / f"protobuf-{text('m:properties/m:protobuf.version')}.jar").exists()


def test_the_pom_compiles_what_the_template_generates() -> None:
    template = yaml.safe_load((FOLDER / "buf.gen.yaml").read_text(encoding="utf-8"))
    sources = text("m:build/m:sourceDirectory").replace("${project.build.directory}", "target")
    assert {plugin["out"] for plugin in template["plugins"]} == {sources}
    assert {found.text for found in pom().iterfind(".//m:destFileName", MAVEN)} == {
        *("buf", "protoc", "grpc_java_plugin")
    }
    assert {found.text for found in pom().iterfind(".//m:dependency/m:artifactId", MAVEN)} == {
        *("grpc-netty-shaded", "grpc-protobuf", "grpc-stub", "protobuf-java", "annotations-api")
    }


def text(path: str) -> str:
    """Returns an element's text in pom.xml."""
    found = pom().findtext(path, namespaces=MAVEN)
    assert found is not None, path
    return found


def pom() -> ElementTree.Element:
    """Returns pom.xml."""
    return ElementTree.parse(FOLDER / "pom.xml").getroot()
