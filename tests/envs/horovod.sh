#!/usr/bin/env bash
# Builds Horovod into the environment whose Python is $1: for the PyTorch in it, over gloo.
# Needs CMake and a C++ compiler. Its CMake says C++14, where PyTorch's headers want C++20.
set -euo pipefail

version=0.28.1
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
PATH=$(dirname "$1"):$PATH # where its build looks for Python

"$1" -m pip download --quiet --no-deps --no-build-isolation --no-binary horovod \
    --dest "$source" "horovod==$version"
tar -xzf "$source/horovod-$version.tar.gz" -C "$source"
cd "$source/horovod-$version"
sed -i 's/set(CMAKE_CXX_STANDARD 14)/set(CMAKE_CXX_STANDARD 20)/' \
    CMakeLists.txt horovod/torch/CMakeLists.txt
export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_CPU_OPERATIONS=GLOO
export HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITHOUT_MPI=1
"$1" -m pip install --quiet --no-deps --no-build-isolation .
