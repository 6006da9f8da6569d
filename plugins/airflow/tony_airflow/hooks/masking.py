"""A job's secrets, given to Airflow's own masker before anything is logged."""

from __future__ import annotations

from typing import Iterable

from airflow.providers.common.compat.sdk import mask_secret

from tony_core.job.mask import ENV_PREFIXES, secrets_in, written_forms
from tony_core.job.spec import Setting


def mask(settings: Iterable[Setting]) -> None:
    """What TonY calls secret, and of environments what Airflow calls so by its name."""
    for item in settings:
        for secret in secrets_in(item.key, item.value):
            for text in (secret, *written_forms(secret)):
                mask_secret(text)
        if item.key.startswith(ENV_PREFIXES) and item.value:
            mask_secret({item.key.rpartition(".")[2]: item.value})
