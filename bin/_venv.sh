# Sourced, not run: how every script here makes a virtual environment.
# Needs bash and a python3; it finds the rest and says so.

# An environment without bytecode imports two to three times slower, and what a
# surrounding virtual environment or notebook exports must not leak into a new one.
unset PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX PYTHONPATH PYTHONHOME
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

say() { printf '%s\n' "$*" >&2; }
die() { say "$(basename "$0"): $*"; exit 1; }

# find_python MINOR: prints a Python 3 of at least that minor version, or dies.
# $PYTHON, if given, is the only one looked at. Of a virtual environment's it is the one behind it:
# the environment may be active that is about to be made anew. By its own name: one Python has several.
find_python() {
    local candidate minor=$1
    for candidate in ${PYTHON:-python3 python python3.14 python3.13 python3.12 python3.11 python3.10}; do
        if "$candidate" -c "import sys; sys.exit(sys.version_info < (3, $minor))" 2>/dev/null; then
            "$candidate" -c 'import os, sys
print(os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable))'
            return
        fi
    done
    die "needs Python 3.$minor or newer; found ${PYTHON:-$(command -v python3 || echo none)}" \
        "(name another with PYTHON=/path/to/python3)"
}

# make_venv PYTHON FOLDER: a virtual environment with pip in it. Debian's and Ubuntu's
# python3 come without ensurepip unless python3-venv is installed; then pip, if there is
# one, brings virtualenv into a folder of its own, and nothing of the system changes.
make_venv() {
    local python=$1 folder=$2 scratch
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        "$python" -m venv "$folder"
    elif "$python" -c 'import virtualenv' 2>/dev/null; then
        "$python" -m virtualenv --quiet "$folder"
    elif "$python" -m pip --version >/dev/null 2>&1; then
        scratch=$(mktemp -d)
        if "$python" -m pip install --quiet --target "$scratch" virtualenv; then
            PYTHONPATH=$scratch "$python" -m virtualenv --quiet "$folder"
        fi
        rm -rf "$scratch"
    fi
    [[ -x $folder/bin/python ]] && "$folder/bin/python" -m pip --version >/dev/null 2>&1 && return
    rm -rf "$folder"
    die "$python can make no virtual environment: it has neither ensurepip nor virtualenv, and pip" \
        "cannot bring one. On Debian and Ubuntu: apt-get install python3-venv"
}

# one_at_a_time FILE COMMAND...: runs the command while holding the lock, if the machine
# has flock(1). The command's own children never inherit the lock.
one_at_a_time() {
    local file=$1
    shift
    if command -v flock >/dev/null; then
        exec 9>"$file"
        flock 9
        "$@" 9>&-
        exec 9>&-
    else
        "$@"
    fi
}

# checkout_venv FOLDER EXTRAS REQUIREMENTS...: a virtual environment in FOLDER with this
# checkout installed in it, editable, with these extras (comma list, may be empty) and
# requirement files. Made again only when something it was made from has changed; an
# interrupted one counts as none. What bin/try keeps in it outlives that.
checkout_venv() {
    local folder=$1
    mkdir -p "$(dirname "$folder")"
    one_at_a_time "$folder.lock" _checkout_venv "$@"
}

_checkout_venv() {
    local folder=$1 extras=$2 python key list arguments=()
    shift 2
    python=$(find_python 10)
    for list in "$@"; do arguments+=(-r "$list"); done
    key=$(
        cd "$checkout"
        {
            echo "$python $("$python" -V) $extras $folder"
            cat setup.cfg pyproject.toml tony_core/version.py "$@"
        } | cksum
    )
    if [[ -x $folder/bin/python && $(cat "$folder/.made-from" 2>/dev/null) == "$key" ]]; then
        return
    fi
    if [[ -n $(ls -A "$folder" 2>/dev/null) && ! -e $folder/.made-from ]]; then
        die "$folder was not made by this script and stays as it is: remove it, or name another folder" \
            "with TONY_VENV"
    fi
    say "Setting up $folder with $python (once; some minutes where Airflow is part of it;" \
        "tail -f $folder.log shows how far it is) ..."
    for list in airflow tony; do
        [[ -e $folder/$list ]] && mkdir -p "$folder.kept" && mv "$folder/$list" "$folder.kept"
    done
    rm -rf "$folder" "$folder.log"
    mkdir -p "$folder"
    : >"$folder/.made-from" # ours, and not whole yet
    make_venv "$python" "$folder"
    _install "$folder" "$extras" ${arguments[@]+"${arguments[@]}"} ||
        _install_without_kerberos "$folder" "$extras" ${arguments[@]+"${arguments[@]}"} ||
        { tail -n 60 "$folder.log" >&2; die "pip could not install what is needed (see above)"; }
    # What pip would do in one process. Some packages ship files that this Python cannot compile.
    "$folder/bin/python" -m compileall -q -j 0 "$folder" >/dev/null 2>&1 || true
    [[ -d $folder.kept ]] && mv "$folder.kept"/* "$folder" && rmdir "$folder.kept"
    rm -f "$folder.log"
    echo "$key" >"$folder/.made-from"
}

# _install FOLDER EXTRAS ARGUMENT...: this checkout and what pip's arguments name.
_install() (
    cd "$checkout"
    "$1/bin/python" -m pip install --no-compile --editable ".${2:+[$2]}" "${@:3}" >>"$1.log" 2>&1
)

# The same where Airflow's provider of HDFS cannot have the Kerberos it asks for, and never uses
# unless a cluster does.
_install_without_kerberos() {
    local folder=$1 extras=$2 provider
    [[ ,$extras, == *,airflow,* ]] || return
    say "Trying again without Kerberos, which only needs to be there for a cluster that asks for it" \
        "(to have it, on Debian and Ubuntu: apt-get install libkrb5-dev gcc python3-dev) ..."
    extras=,$extras,
    extras=${extras/,airflow,/,airflow-without-kerberos,}
    extras=${extras#,}
    _install "$folder" "${extras%,}" "${@:3}" || return
    provider=$(grep -om1 'apache-airflow-providers-apache-hdfs[^ ]*' "$checkout/setup.cfg")
    "$folder/bin/python" -m pip install --no-deps "$provider" >>"$folder.log" 2>&1
}

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
