"""Metadata of the package; tool settings are in pyproject.toml."""

import pathlib

import setuptools

setuptools.setup(
    name="tf_amp_rewriter",
    version="0.1.0",
    description="Offline mixed-precision (half, bfloat16) rewriter for TensorFlow SavedModels",
    long_description=pathlib.Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "License :: OSI Approved :: Apache Software License",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    packages=setuptools.find_packages(include=["tf_amp_rewriter", "tf_amp_rewriter.*"]),
    package_data={"tf_amp_rewriter": ["py.typed", "ops/*.json"]},
    zip_safe=False,
    python_requires=">=3.10",
    install_requires=[
        "absl-py>=1.4",
        "google-crc32c>=1.5",
        # TensorFlow pins ml_dtypes and NumPy to what it was built against; these lower bounds only
        # say what this package itself needs.
        "ml_dtypes>=0.2",
        "numpy>=1.23.5",
        "tensorflow>=2.15,<3",
        'tomli>=2; python_version < "3.11"',
    ],
    extras_require={
        # The tools are pinned, so that a new release of one of them never fails an old commit.
        "dev": [
            "hypothesis==6.170.17",
            "mypy==2.4.1",
            "pytest==9.2.0",
            "ruff==0.17.6",
            "scikit-learn>=1.3",
            "setuptools>=61",
            "tf-keras>=2.15",
            "types-protobuf==7.35.1.20260906",
            "types-tensorflow==2.18.0.20261009",
            "wheel>=0.40",
        ],
    },
    entry_points={"console_scripts": ["tf_amp_rewriter=tf_amp_rewriter.cli:main"]},
)
