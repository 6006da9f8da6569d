# Sourced, not run: stages with time limits, and one summary line of all their tests at the end.
# Who sources it first sets `most`, the seconds for all stages together.

set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
export CI=true PYTHONUNBUFFERED=1
exec </dev/null

venv=${TONY_VENV:-$PWD/.venv}
logs=$(mktemp -d "${TMPDIR:-/tmp}/tony-ci.XXXXXX")
trap 'rm -rf "$logs"' EXIT

names=() results=() times=() failed=0

# stage NAME SECONDS COMMAND...: one stage with its time limit. What a test leaves running
# may hold the output open, so that goes through a file and not through a pipe.
stage() {
    local name=$1 limit=$2 log=$logs/$1.log started=$SECONDS left pid code
    shift 2
    left=$((most - SECONDS))
    ((limit <= left)) || limit=$left
    printf '\n===== %s\n' "$name"
    if ((limit < 5)); then
        code=124
        echo "not run: the ${most} s for all stages are over" | tee "$log"
    else
        : >"$log"
        timeout --kill-after=20 "$limit" "$@" >"$log" 2>&1 &
        pid=$!
        tail -n +1 -s 0.2 -f --pid="$pid" "$log"
        wait "$pid"
        code=$?
    fi
    names+=("$name")
    times+=($((SECONDS - started)))
    case $code in
        0) results+=(ok) ;;
        124) results+=("FAILED: over its ${limit} s") ;;
        137) results+=("FAILED: killed, over its ${limit} s or out of memory") ;;
        *) results+=("FAILED: exit code $code") ;;
    esac
    ((code == 0)) || failed=$((failed + 1))
    return "$code"
}

# A test that fails is tried once more, and the last lines say which: real servers on a shared
# machine are not always in time. What needed its second try is looked into all the same.
again=(--reruns 1 --reruns-delay 2 -raR --rerun-show-tracebacks)
slowest=(--durations=30 --durations-min=3) # where a stage's time goes

# tests NAME SECONDS MARKER [ARGUMENT...]: the tests so marked; that there are none is no failure.
tests() {
    stage "$1" "$2" bin/test "${again[@]}" "${slowest[@]}" -m "${@:3}"
    if (($? == 5)); then
        failed=$((failed - 1))
        results[-1]="no such tests"
    fi
}

# system_packages [PROGRAM:PACKAGE...]: what all stages need, and these programs.
system_packages() {
    local missing=() has_headers more
    has_headers='import os, sysconfig as s; os.stat(os.path.join(s.get_path("include"), "Python.h"))'
    command -v git >/dev/null || missing+=(git)
    command -v flock >/dev/null || missing+=(util-linux)
    "${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null ||
        "${PYTHON:-python3}" -m pip --version >/dev/null 2>&1 || missing+=(python3 python3-venv)
    # The Hadoop of the tests marked cluster: its servers run on Java and come by Maven.
    compgen -G '/usr/lib/jvm/*-17-*/bin/java' >/dev/null || [[ -n ${TONY_JAVA_HOME:-} ]] ||
        missing+=(openjdk-17-jdk-headless)
    command -v mvn >/dev/null || missing+=(maven)
    # The KDC of the secure cluster. Its packages ask for a realm unless told not to ask.
    command -v krb5kdc >/dev/null || [[ -x /usr/sbin/krb5kdc ]] || missing+=(krb5-kdc)
    command -v kadmin.local >/dev/null || [[ -x /usr/sbin/kadmin.local ]] ||
        missing+=(krb5-admin-server)
    command -v kinit >/dev/null || missing+=(krb5-user)
    compgen -G '/usr/lib/*/libnss_wrapper.so' >/dev/null || missing+=(libnss-wrapper)
    command -v curl >/dev/null || missing+=(curl)
    # The closed firewall between a client and the nodes, which only root can make.
    ((EUID != 0)) || command -v nft >/dev/null || missing+=(nftables)
    # The browser that looks at the job's page.
    command -v chromium chromium-browser google-chrome >/dev/null || missing+=(chromium)
    for more in "$@"; do
        command -v "${more%%:*}" >/dev/null || missing+=("${more#*:}")
    done
    # What Airflow's provider of HDFS builds; without it that is installed without Kerberos. The
    # compiler also makes the clock that the tests set under a job.
    if ((EUID == 0)) && command -v apt-get >/dev/null; then
        command -v krb5-config >/dev/null || missing+=(libkrb5-dev)
        command -v gcc >/dev/null || missing+=(gcc libc6-dev)
        "${PYTHON:-python3}" -c "$has_headers" 2>/dev/null || missing+=(python3-dev)
    fi
    if ((${#missing[@]} == 0)); then
        echo "nothing is missing"
    elif ((EUID == 0)) && command -v apt-get >/dev/null; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"
    else
        echo "missing, and not to be installed from here: ${missing[*]}"
        return 1
    fi
}
export -f system_packages

# The sum of the summary lines in the logs, and one error for each failed stage that
# has no failed test to show for it.
summary() {
    "${PYTHON:-python3}" - "$SECONDS" "$logs" "${names[@]}" "${results[@]}" <<'PYTHON'
import re
import sys
from collections import Counter
from pathlib import Path

seconds, logs, *rest = sys.argv[1:]
names, results = rest[: len(rest) // 2], rest[len(rest) // 2 :]
order = ["failed", "passed", "skipped", "xfailed", "xpassed", "error"]
line = re.compile(r"^=* ?((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s(?: \([\d:]+\))? ?=*$")
total = Counter()
for name, result in zip(names, results):
    found = Counter()
    text = re.sub(r"\x1b\[[\d;]*m", "", Path(logs, name + ".log").read_text(errors="replace"))
    for match in filter(None, map(line.match, text.splitlines())):
        found = Counter()
        for count, word in re.findall(r"(\d+) ([a-z]+)", match[1]):
            found["error" if word == "errors" else word] = int(count)
    if result.startswith("FAILED") and not found["failed"] + found["error"]:
        found["error"] += 1
    total += found
words = [
    f"{total[word]} {word}{'s' if word == 'error' and total[word] > 1 else ''}"
    for word in order
    if total[word]
]
clock = f" ({int(seconds) // 3600}:{int(seconds) // 60 % 60:02}:{int(seconds) % 60:02})"
text = f" {', '.join(words) or 'no tests ran'} in {float(seconds):.2f}s{clock} "
print(text.center(80, "="))
PYTHON
}

# What became of each stage, what was tried twice, the sum of the tests: the script's last word.
finish() {
    local i
    printf '\n===== stages\n'
    for i in "${!names[@]}"; do
        printf '%-16s %5d s   %s\n' "${names[i]}" "${times[i]}" "${results[i]}"
    done
    grep -hs '^RERUN ' "$logs"/*.log | sed 's/^RERUN/tried twice:/' | sort -u
    summary
    ((failed == 0))
}
