// The live tail: the last 200 changes. `app.js` has the stream and tells of each change.
(() => {
  "use strict";
  const list = document.querySelector("#tail");
  const body = list.tBodies[0];
  const pause = document.querySelector("#tail-pause");
  const said = document.querySelector("#tail-said");
  const words = JSON.parse(list.dataset.words);
  const most = 200;
  // What is not shown yet, newest first.
  let waiting = [];
  let paused = false;

  const part = (tag, name, text, more = {}) => {
    const element = document.createElement(tag);
    if (name) element.className = name;
    element.textContent = text;
    Object.entries(more).forEach(([key, value]) => element.setAttribute(key, value));
    return element;
  };
  const cell = (name, ...parts) => {
    const td = part("td", name, "");
    td.append(...parts);
    return td;
  };
  const change = (one) => {
    const row = document.createElement("tr");
    const at = part("time", "", one.at.slice(11, 19), { datetime: one.at, title: `${one.at.slice(0, 19).replace("T", " ")} UTC` });
    const of = "tenants" in list.dataset ? `, ${one.tenant}` : "";
    const code = one.statusCode ? `HTTP ${one.statusCode}` : "";
    row.append(
      cell("when", at),
      cell("wrap", part("span", "st", words[one.state] || one.state, { "data-s": one.state })),
      cell("", part("a", "l1", one.destination, { href: `/notifications/${encodeURIComponent(one.notificationId)}`, title: one.notificationId }),
        part("span", "l2", one.channel + of)),
      cell("", part("span", "l1", [code, one.failureType].filter(Boolean).join(", ")), part("span", "l2", one.reasonCode || "")),
      cell("r", String(one.attempt)),
    );
    return row;
  };
  const gap = () => {
    const row = document.createElement("tr");
    const text = part("span", "fnt", "Some changes are not shown here: more than 200 a second came, or the connection broke. ");
    row.append(cell("", text, part("a", "", "The list has them.", { href: `/notifications${location.search}` })));
    row.firstChild.colSpan = 5;
    return row;
  };
  const keep = (row) => {
    waiting.unshift(row);
    waiting.length = Math.min(waiting.length, most);
  };

  // Nothing moves while somebody points at the list or has the focus in it.
  const show = () => {
    const held = !paused && body.matches(":hover, :focus-within");
    if (!paused && !held && waiting.length && !document.hidden) {
      body.prepend(...waiting);
      waiting = [];
      while (body.rows.length > most) body.lastElementChild.remove();
    }
    const more = waiting.length === most ? `${most} or more` : waiting.length;
    const text = paused || (held && waiting.length) ? `${paused ? "Paused" : "Held while you are in the list"}, ${more} came meanwhile`
      : body.rows.length ? "The last 200 changes" : "Waiting for the next change";
    if (said.textContent !== text) said.textContent = text;
  };
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    show();
  });
  document.addEventListener("live:change", (event) => keep(change(event.detail)));
  document.addEventListener("live:missed", () => keep(gap()));
  list.hidden = pause.hidden = false;
  setInterval(show, 250);
  show();
})();
