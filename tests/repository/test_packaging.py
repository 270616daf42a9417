"""What an installation brings: data files, extras, groups, one version. Nothing is built here."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pathspec
import pytest
import yaml
from diffusers import StableDiffusionPipeline
from diffusers.utils import dummy_torch_and_transformers_objects as dummies
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import todo_core
from tests.repository.test_architecture import imports
from todo_lab.environment import TORCH

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
GROUPS = PROJECT["dependency-groups"]
PACKAGES = ("todo_core", "todo_lab")
DATA = sorted(
    path.relative_to(ROOT).as_posix()
    for package in PACKAGES
    for path in (ROOT / package).rglob("*")
    if path.is_file() and path.suffix not in (".py", ".pyc")
)

# modules whose distribution has another name
DISTRIBUTIONS = {"PIL": "pillow", "skimage": "scikit-image", "yaml": "pyyaml"}
# installed by hand with --no-deps: ldm, and what one script alone needs
BY_HAND = {"ldm", "DeepCache"}
# which group covers the imports of which folders. Ray is an engine of choice, with a group of its own.
ROOMS = {
    "demo": ("todo_lab/demo", "todo_lab/sampling", "todo_lab/pocket/model"),
    "evaluation": ("todo_lab/evaluation", "todo_lab/sampling", "todo_lab/pocket"),
    "benchmark": ("benchmarks",),
}
# the benchmark's own modules, and the WebUI's
FROM_OTHERS = {"evaluation": {"ray"}, "benchmark": {"performance", "results", "unet_call", "modules"}}


def named(requirements):
    return {canonicalize_name(found.name): found for found in map(Requirement, requirements)}


def test_every_kind_of_data_file_is_there_and_none_is_ignored():
    """Hatch leaves out what .gitignore names, by the same library."""
    assert {"todo_core/py.typed", "todo_lab/py.typed"} <= set(DATA)
    for pattern in (r"pocket/weights/.+\.safetensors", r"prompts/.+\.txt", r"page\.css", r"requirements\.txt"):
        assert any(re.search(pattern, path) for path in DATA), pattern
    ignored = pathspec.GitIgnoreSpec.from_lines((ROOT / ".gitignore").read_text().splitlines())
    assert not [path for path in DATA if ignored.match_file(path)]


def test_readmes_example_needs_the_diffusers_extra_alone():
    readme = (ROOT / "README.md").read_text()
    assert "todo-for-webui[diffusers]" in readme
    assert PROJECT["project"]["name"] == "todo-for-webui"
    covered = {"torch", *PACKAGES, *sys.stdlib_module_names, *named(EXTRAS["diffusers"])}
    imported = re.findall(r"^ *(?:from|import) (\w+)", "".join(re.findall(r"```python\n(.*?)```", readme, re.S)), re.M)
    assert set(imported) <= covered
    # without these, diffusers puts a class that only raises in the pipeline's place
    needs = dummies.StableDiffusionPipeline._backends
    assert StableDiffusionPipeline.__name__ == dummies.StableDiffusionPipeline.__name__
    assert set(needs) <= {"torch", *named(EXTRAS["diffusers"])}


@pytest.mark.parametrize("group", ROOMS)
def test_a_group_covers_what_its_folders_import(group):
    files = [path for room in ROOMS[group] for path in (ROOT / room).rglob("*.py")]
    known = {"torch", *PACKAGES, *sys.stdlib_module_names, *BY_HAND, *FROM_OTHERS.get(group, ())}
    foreign = {name.split(".")[0] for path in files for name in imports(path)} - known
    assert {canonicalize_name(DISTRIBUTIONS.get(name, name)) for name in foreign} <= set(named(GROUPS[group]))


def test_the_demos_group_is_its_requirements():
    lines = (ROOT / "todo_lab/demo/requirements.txt").read_text().splitlines()
    pinned = named([*TORCH, *(line.partition("#")[0] for line in lines if line.partition("#")[0].strip())])
    group = named(GROUPS["demo"])
    assert pinned.keys() == group.keys()
    for name, requirement in pinned.items():
        for pin in requirement.specifier:
            assert group[name].specifier.contains(pin.version)


ADDRESSED = ("README.md", "pyproject.toml", "docs/comfyui.md", "docs/python.md", "docs/extension-index.json")


def test_one_command_fills_in_the_repositorys_address(tmp_path):
    for name in ADDRESSED:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (command,) = re.findall(r"   ```bash\n(   NAME=.*?)   ```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)
    command = f"git init -q && git add .\n{command.replace('owner/repository', 'alice/faster')}"
    subprocess.run(["bash", "-ec", command], cwd=tmp_path, check=True)
    filled = {name: (tmp_path / name).read_text() for name in ADDRESSED}
    assert not [name for name, text in filled.items() if "OWNER" in text or "ADDRESS" in text]
    assert all("alice/faster" in text for text in filled.values())
    assert 'PublisherId = "alice"' in filled["pyproject.toml"]
    assert 'pip install "todo-for-webui[diffusers] @ git+https://github.com/alice/faster"' in filled["README.md"]


def test_the_places_of_the_version_agree():
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "todo_core/__init__.py"
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == todo_core.__version__
    dated = f"## [{todo_core.__version__}] - {cited['date-released']}"
    assert dated in (ROOT / "CHANGELOG.md").read_text()


def workflow(name):
    return yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text())


def test_nothing_is_published_before_the_tests_nor_by_an_action_that_others_can_change():
    published, tested = workflow("publish"), workflow("tests")
    assert published["jobs"]["publish"]["needs"] == "tests"
    assert published["jobs"]["tests"]["uses"] == "./.github/workflows/tests.yml"
    triggers = tested[True]  # YAML's "on"
    assert "workflow_call" in triggers
    assert triggers["push"] == {"branches": ["**"]}, "a tag's tests run once"
    for path in (ROOT / ".github/workflows").iterdir():
        for owner, version in re.findall(r"uses: ([\w-]+)/\S+@(\S+)", path.read_text()):
            assert owner == "actions" or re.fullmatch("[0-9a-f]{40}", version)


def test_the_oldest_versions_that_are_declared_are_tested():
    commands = [step.get("run", "") for step in workflow("tests")["jobs"]["oldest"]["steps"]]
    declared = re.findall(r"(torch|diffusers)>=([\d.]+)", str(EXTRAS["diffusers"]))
    assert len(declared) == 2
    assert all(f"{name}=={version}." in " ".join(commands) for name, version in declared)


@pytest.mark.slow
def test_comfyuis_registry_takes_the_nodes(tmp_path, monkeypatch):
    """By the parser and the packer of its own command."""
    zip_files = pytest.importorskip("comfy_cli.file_utils").zip_files  # tests/requirements-slow.txt
    from comfy_cli.registry.config_parser import extract_node_configuration

    monkeypatch.chdir(ROOT)
    config = extract_node_configuration(str(ROOT / "pyproject.toml"))
    assert config.project.version == todo_core.__version__
    assert config.project.urls.repository
    assert not config.project.dependencies  # its manager would install them
    zip_files(tmp_path / "node.zip", config.tool_comfy.includes)
    packed = zipfile.ZipFile(tmp_path / "node.zip")
    names = set(packed.namelist())
    assert {"__init__.py", "todo_core/comfyui/nodes.py", "todo_core/comfyui/web/docs/ToDo.md"} <= names
    assert {name.split("/")[0] for name in names if "/" in name} == {"todo_core", "example_workflows"}
    pages = "".join(packed.read(name).decode() for name in names if name.endswith(".md"))
    assert not re.findall(r"\]\((?!https:)", pages)  # to a file that is not packed
    assert sum(entry.file_size for entry in packed.infolist()) < 1_000_000
