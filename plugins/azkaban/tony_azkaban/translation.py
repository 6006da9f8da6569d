"""From a job's properties to a job: the words of a job file with ``type=tony``.

``executes``, ``src_dir``, ... are those of the JVM's plugin and of ``tony submit``; every
``tony.*`` is a key of the job (docs/keys.md). From low to high: defaults, the site's
``tony-site.xml``, what ``site.properties`` says, the job file (``conf_file``, else ``tony.xml``
in the job's folder), the job's properties. What the site calls final, nobody changes.
"""

from __future__ import annotations

import os
import re
from typing import Dict, List, Mapping, Tuple

from tony_azkaban.execution import Execution, beside
from tony_azkaban.site import Site
from tony_azkaban.words import ENV, KEYS, WORKER_ENV, Words, is_of_submitter, read_words
from tony_core.job.keys import modern_name
from tony_core.job.load import JobArguments, Loaded
from tony_core.job.problems import JobError, Problem, Severity
from tony_core.job.spec import Job
from tony_core.job.units import ENV_NAME

OURS = ("tony.home",)  # of the job type itself, no key of a job
SOURCE = "src"  # what a job that names no src_dir sends, if it is there
DATASETS = {
    "azkaban.input.dataset": "AZKABAN_INPUT_DATASET",
    "azkaban.output.dataset": "AZKABAN_OUTPUT_DATASET",
}
#: Where a problem of the loader's stands, as somebody who writes job files calls it.
_WHERE = {
    "argument": "job properties",
    "--executes": "executes",
    "--task_params": "task_params",
    "--src_dir": "src_dir",
    "--python_venv": "python_venv",
    "--python_binary_path": "python_binary_path",
    "--hdfs_classpath": "hdfs_classpath",
    "--shell_env": "worker_env, env or shell_env",
    "--container_env": "container_env",
}
_SAID = re.compile(r"(?<![\w-])(" + "|".join(word for word in _WHERE if word[0] == "-") + r")\b")


def arguments(props: Mapping[str, str], site: Site, cwd: str) -> JobArguments:
    """What ``tony submit`` would have been told."""
    words = read_words(props)
    said = {
        name: words.options.get(name) or _bare(props.get(name, "").strip()) or None
        for name in _WORDS
    }
    source = said["src_dir"]
    if source is None and os.path.isdir(os.path.join(cwd, SOURCE)):
        source = SOURCE
    return JobArguments(
        executes=said["executes"],
        task_params=words.options.get("task_params")
        or props.get("task_params", "").strip()
        or None,
        src_dir=source,
        python_venv=said["python_venv"],
        python_binary_path=said["python_binary_path"],
        conf_file=said["conf_file"],
        hdfs_classpath=said["hdfs_classpath"],
        sidecar_tensorboard_log_dir=words.options.get("sidecar_tensorboard_log_dir"),
        shell_env=environment(props, words),
        container_env=words.container_env,
        extra={
            **{k: text for k, text in props.items() if k.startswith(KEYS) and k not in OURS},
            **words.conf,
        },
        defaults={**site.defaults, **site.finals},
        defaults_from=site.file,
    )


#: ``task_params`` is none of them: its quotes are the program's.
_WORDS = (
    "executes",
    "src_dir",
    "python_venv",
    "python_binary_path",
    "conf_file",
    "hdfs_classpath",
)


def environment(props: Mapping[str, str], words: Words = Words()) -> Dict[str, str]:
    """What the programs get: ``env.X``, the data sets, and, above both, what is for them alone."""
    found: Dict[str, str] = {}
    for key, text in props.items():
        name = key[len(ENV) :]
        # A name of another kind is none that a job here could mean: the server's own, maybe.
        if key.startswith(ENV) and not is_of_submitter(name) and ENV_NAME.fullmatch(name):
            found[name] = text
    for key, name in DATASETS.items():
        if props.get(key):
            found[name] = props[key].replace(",", ";")
    found.update(words.shell_env)
    wrong = []
    for key, text in props.items():
        if key.startswith(WORKER_ENV):
            name = key[len(WORKER_ENV) :]
            if ENV_NAME.fullmatch(name) is None:
                wrong.append(Problem(f"{name!r} is not a name for an environment variable", key))
            found[name] = _bare(text)
    if wrong:
        raise JobError(wrong)
    return found


def _bare(text: str) -> str:
    """Without the quotes around the whole of it, which the JVM's command line needed."""
    quote = text[:1]
    if quote in ("'", '"') and len(text) > 1 and text.find(quote, 1) == len(text) - 1:
        return text[1:-1]
    return text


def retold(error: JobError) -> JobError:
    """The same problems in the words of a job file of Azkaban's."""
    return JobError([in_properties(problem) for problem in error.problems])


def in_properties(problem: Problem) -> Problem:
    """The same problem with the names of a job's properties for those of the command line."""
    return problem._replace(
        message=_SAID.sub(lambda found: _WHERE[found[1]], problem.message).replace(
            "(argument)", f"({_WHERE['argument']})"
        ),
        file=_WHERE.get(problem.file or "", problem.file),
    )


def finished(loaded: Loaded, site: Site, execution: Execution) -> Tuple[Job, List[Problem]]:
    """The job as it goes out, and what is worth a line; JobError for what the site forbids."""
    job = loaded.job
    sources = {item.key: item for item in job.settings}
    wrong = _finals(job, site)
    notes = [in_properties(problem) for problem in loaded.warnings]

    def unsaid(key: str) -> bool:
        return key not in sources or sources[key].source == "default"

    if unsaid("tony.application.name"):
        job = job.replace(name=execution.job)
    if unsaid("tony.client.lease"):
        job = job.replace(timeouts=job.timeouts._replace(client_lease_s=site.lease_s))
    if site.queues:
        if unsaid("tony.yarn.queue") and not _allowed(job.queue, site):
            job = job.replace(queue=site.queues[0])
        elif not _allowed(job.queue, site):
            there = ", ".join(site.queues)
            message = f"{job.queue} is none of this server's queues for such jobs ({there})"
            where = sources["tony.yarn.queue"]
            wrong.append(in_properties(Problem(message, "tony.yarn.queue", where.source)))
    if wrong:
        raise JobError(wrong)
    tags, left_out = beside(job.tags, execution.tags())
    if left_out:
        message = f"YARN takes ten tags: these are left out: {', '.join(left_out)}"
        notes.append(Problem(message, "tony.application.tags", severity=Severity.WARNING))
    own = dict(job.links)
    more = tuple((name, url) for name, url in execution.links if name not in own)
    return job.replace(tags=tags, links=(*job.links, *more)), notes


def _finals(job: Job, site: Site) -> List[Problem]:
    found = []
    for key, value in site.finals.items():
        for item in job.settings:
            if item.key != modern_name(key) or item.source == site.file:
                continue
            if item.value.strip() != value.strip():
                message = f"is final in {site.file}: cannot be changed"
                found.append(in_properties(Problem(message, item.key, item.source)))
    return found


def _allowed(queue: str, site: Site) -> bool:
    return _plain(queue) in {_plain(each) for each in site.queues}


def _plain(queue: str) -> str:
    return queue.removeprefix("root.")
