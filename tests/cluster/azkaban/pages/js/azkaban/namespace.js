// What makes the pages of a sandbox's Azkaban work. The server's own scripts are in no jar, but
// its pages name this file first; so here is, for all of them, the little that people need to look
// at an execution: log in, start a flow, its jobs and their states, a job's log, kill.
"use strict";

(() => {
  const byId = (id) => document.getElementById(id);

  async function ask(path, words, method = "GET") {
    const query = new URLSearchParams(words).toString();
    const answer = await fetch(method === "GET" ? `${path}?${query}` : path, {
      method,
      headers: {
        "X-Requested-With": "XMLHttpRequest",
        "Content-Type": "application/x-www-form-urlencoded",
      },
      body: method === "GET" ? undefined : query,
    });
    return answer.json();
  }

  function put(parent, tag, text, attributes = {}) {
    const made = parent.appendChild(document.createElement(tag));
    made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }

  const clock = (ms) => (ms > 0 ? new Date(ms).toLocaleTimeString() : "-");

  function loginPage() {
    const message = byId("error-msg");
    message.style.display = "none";
    async function login(event) {
      event.preventDefault();
      const words = { action: "login", username: byId("username").value };
      const answer = await ask("/", { ...words, password: byId("password").value }, "POST");
      if (!answer.error) return window.location.reload();
      message.textContent = answer.error;
      message.style.display = "block";
    }
    byId("login-submit").addEventListener("click", login);
    byId("login-form").addEventListener("submit", login);
    byId("password").addEventListener("keydown", (e) => e.key === "Enter" && login(e));
  }

  // Which part of a text the page of 2.5 takes for an address: it stops at the first of - : % # in
  // the path. Later ones take more; so what is a whole link here is one everywhere.
  const ADDRESS = /https?:\/\/[-\w.]+(?::\d+)?(?:\/[\w\/.]*(?:\?\S+)?)?/g;

  function linked(section, text) {
    // The server has made it HTML already; back to text, and only then to elements.
    const plain = new DOMParser().parseFromString(`<pre>\n${text}</pre>`, "text/html");
    const found = plain.body.textContent;
    let from = 0;
    section.textContent = "";
    for (const match of found.matchAll(ADDRESS)) {
      section.append(found.slice(from, match.index));
      put(section, "a", match[0], { href: match[0] });
      from = match.index + match[0].length;
    }
    section.append(found.slice(from));
  }

  function logPage() {
    let text = "";
    let offset = 0;
    async function refresh() {
      for (;;) {
        const words = { ajax: "fetchExecJobLogs", execid: execId, jobId, attempt };
        const answer = await ask("/executor", { ...words, offset, length: 50000 });
        if (answer.error || !answer.length) break;
        offset = answer.offset + answer.length;
        text += answer.data;
      }
      linked(byId("logSection"), text);
    }
    byId("updateLogBtn").addEventListener("click", refresh);
    refresh();
    setInterval(refresh, 2000);
  }

  function executionPage() {
    const words = { execid: execId };
    async function refresh() {
      const answer = await ask("/executor", { ...words, ajax: "fetchexecflow" });
      if (answer.error) return;
      byId("flowStatus").textContent = answer.status;
      byId("submitUser").textContent = answer.submitUser;
      byId("startTime").textContent = clock(answer.startTime);
      byId("endTime").textContent = clock(answer.endTime);
      const body = byId("executableBody");
      body.textContent = "";
      for (const node of answer.nodes.sort((a, b) => (a.startTime || 1e15) - (b.startTime || 1e15))) {
        const row = put(body, "tr", "");
        put(row, "td", node.id);
        put(row, "td", node.type || "");
        put(row, "td", "");
        put(row, "td", clock(node.startTime));
        put(row, "td", clock(node.endTime));
        const ran = (node.endTime > 0 ? node.endTime : Date.now()) - node.startTime;
        put(row, "td", node.startTime > 0 ? `${Math.max(0, ran / 1000).toFixed(1)} s` : "-");
        put(row, "td", node.status, { class: `status ${node.status}` });
        const job = encodeURIComponent(node.id);
        put(put(row, "td", ""), "a", "Log", { href: `/executor?execid=${execId}&job=${job}` });
      }
    }
    byId("cancelbtn").addEventListener("click", async () => {
      await ask("/executor", { ...words, ajax: "cancelFlow" });
      refresh();
    });
    refresh();
    setInterval(refresh, 2000);
  }

  function projectPage() {
    for (const button of document.querySelectorAll("button.execute-flow")) {
      button.addEventListener("click", async () => {
        const flow = button.getAttribute("flowId");
        const answer = await ask("/executor", { ajax: "executeFlow", project: projectName, flow });
        if (answer.execid) window.location.href = `/executor?execid=${answer.execid}`;
        else window.alert(answer.error);
      });
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    if (byId("login-form")) loginPage();
    if (byId("jobLogView")) logPage();
    if (byId("executableBody") && typeof execId !== "undefined") executionPage();
    projectPage();
  });
})();
