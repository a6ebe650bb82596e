"use strict";
(() => {
  const live = document.getElementById("live");
  const every = 3000;
  let failed = false;

  // A button beside each command. Where the clipboard is out of reach there is none.
  const dress = (root) => {
    if (!navigator.clipboard) return;
    for (const box of root.querySelectorAll(".cmd:not(.dressed)")) {
      box.classList.add("dressed");
      const button = document.createElement("button");
      const command = box.querySelector("code").textContent;
      button.type = "button";
      button.textContent = "Copy";
      button.setAttribute("aria-label", "Copy the command " + command);
      button.addEventListener("click", async () => {
        try {
          await navigator.clipboard.writeText(command);
          button.textContent = "Copied";
        } catch {
          button.textContent = "Select it";
        }
        setTimeout(() => (button.textContent = "Copy"), 1500);
      });
      box.append(button);
    }
  };

  // Whoever selects text, opens a list or stands on a button keeps it.
  const busy = () => {
    const selection = document.getSelection();
    const at = document.activeElement;
    return (selection && !selection.isCollapsed) || (at && at.closest && at.closest("#live button"));
  };

  const renew = async () => {
    if (document.hidden || busy()) return;
    try {
      const answer = await fetch(location.pathname, { cache: "no-store", headers: { accept: "text/html" } });
      if (answer.status === 401) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = page.getElementById("live");
      if (!next) throw new Error("no page");
      const open = [...live.querySelectorAll("details")].map((d) => d.open);
      next.querySelectorAll("details").forEach((d, i) => (d.open = open[i] ?? d.open));
      // The announcement stays the same element: a screen reader speaks when its text changes, and only then.
      const said = live.querySelector("#announce"), says = next.querySelector("#announce").textContent;
      next.querySelector("#announce").remove();
      const focused = document.activeElement && document.activeElement.id;
      live.replaceChildren(...next.children);
      live.append(said);
      if (said.textContent !== says) said.textContent = says;
      if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
      document.title = page.title;
      dress(live);
      live.classList.remove("stale");
      failed = false;
    } catch {
      // The daemon is away. What is shown stays, and says that it is old.
      if (!failed) document.getElementById("announce").textContent = "The daemon does not answer";
      live.classList.add("stale");
      failed = true;
    }
  };

  dress(document);
  setInterval(renew, every);
})();
