"""A master's page behind a real ResourceManager's proxy, without a container.

The master is the test's own (a :class:`Shell`), registered with the ResourceManager as an
unmanaged application's: all between a browser and the page is real.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Optional, Type
from urllib.parse import urlsplit

from tests.master.shell import Shell
from tony_core.hadoop.credentials import Credentials, CredentialsError, am_rm_token
from tony_core.hadoop.identity import ClusterIdentity
from tony_core.hadoop.site import endpoints
from tony_core.hadoop.site.configuration import SiteConfiguration
from tony_core.hadoop.tokens import Token
from tony_core.hadoop.yarn.messages.client_calls import ApplicationSubmissionContext
from tony_core.hadoop.yarn.messages.yarn import ContainerLaunchContext
from tony_core.hadoop.yarn.records import Capability
from tony_core.hadoop.yarn.rm_client import RmClient
from tony_core.hadoop.yarn.rm_master import RmMaster
from tony_core.job.spec import Job
from tony_core.schedulers.container_pool import WebProxy
from tony_core.schedulers.yarn import job_credentials
from tony_core.schedulers.yarn.master.webproxy import web_proxy

PATIENCE_S = 60.0


class BehindProxy:
    """A job whose page is read through the proxy, until it is left.

    On a cluster with Kerberos the page has the site's own settings, as a master reads them. No
    unmanaged application gets its token there: the ResourceManager compares the principal with
    the user's short name. So the token is that of a container on one of the ``nodes``, which
    waits until the job is left.
    """

    def __init__(
        self,
        conf_dir: str,
        identity: ClusterIdentity,
        folder: Path,
        job: Job,
        *,
        nodes: Optional[Path] = None,
        **proxy: str,
    ) -> None:
        self._nodes = nodes
        self._over = folder / "over"
        wait = f"until test -e '{self._over}'; do sleep 0.1; done"
        self._conf = SiteConfiguration.load({}, conf_dir=conf_dir)
        self.client = RmClient.open(self._conf, identity=identity)
        self.application = self.client.new_application().id
        context = ApplicationSubmissionContext(
            application_id=self.application.to_message(),
            application_name="behind the proxy",
            queue="default",
            unmanaged_am=nodes is None,
            application_type="TONY",
            am_container_spec=ContainerLaunchContext(command=[wait] if nodes else []),
            resource=Capability(64, 1).to_message(),
            max_app_attempts=1,
        )
        self.client.submit(context)
        web = self._conf.get("yarn.resourcemanager.webapp.address")
        assert web, "the ResourceManager's web address is not known"
        self.url = f"http://{web}/proxy/{self.application}/"
        where = WebProxy((str(urlsplit(self.url).hostname),), self.url, "dr.who")
        if identity.is_secure:
            sent = job_credentials.select_master_properties(self._conf)
            where = web_proxy(SiteConfiguration.of(sent), self.application, "")
        where = where._replace(**proxy)
        master_context = {"host": "localhost", "bind": "0.0.0.0", "proxy": where}
        self.shell = Shell(folder, job.replace(user=identity.user), context=master_context)
        self._rm = self._register()
        self._stopped = threading.Event()
        self._beating = threading.Thread(target=self._beat)

    def _register(self) -> RmMaster:
        end = time.monotonic() + PATIENCE_S
        while True:
            token = self._find_token()
            if token is not None:
                break
            assert time.monotonic() < end, "the application was not accepted"
            time.sleep(0.05)
        allowed = endpoints.allowed_protections(self._conf)
        rm = RmMaster.open(endpoints.rm_scheduler(self._conf), token, allowed=allowed)
        rm.register("localhost", 0, self.shell.master._site.url)
        return rm

    def _find_token(self) -> Optional[Token]:
        if self._nodes is None:
            return self.client.report(self.application).am_rm_token
        for path in self._nodes.glob(f"**/{self.application}/container_*/container_tokens"):
            try:
                return am_rm_token(Credentials.decode(path.read_bytes()))
            except CredentialsError:
                pass  # it is being written
        return None

    def _beat(self) -> None:
        while not self._stopped.wait(1.0):
            self._rm.allocate(resource_requests=(), progress=0.5)

    def finish(self, tracking_url: str = "") -> Any:
        """What the proxy sees when the job has ended."""
        self._stopped.set()
        self._beating.join()
        return self._rm.finish("SUCCEEDED", "", tracking_url)

    def __enter__(self) -> BehindProxy:
        self.shell.__enter__()
        self._beating.start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if not self._stopped.is_set():
            self.finish()
        self._over.touch()
        self._rm.close()
        self.client.close()
        self.shell.__exit__(kind, error, trace)
