// The dashboard's own script: local times, keys, copying. Every page works without it.
(() => {
  "use strict";
  const q = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const two = (number) => String(number).padStart(2, "0");
  const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

  // The server prints UTC; here it becomes local time. The title keeps UTC.
  const localise = (from) => {
    const today = new Date().toDateString();
    all("time[datetime]", from).forEach((time) => {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) return;
      const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
      time.textContent = at.toDateString() === today ? clock : `${at.getDate()} ${months[at.getMonth()]} ${clock}`;
    });
    all("[data-copy]", from).forEach((button) => { button.hidden = !navigator.clipboard; });
  };

  const words = (seconds) => {
    const parts = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
    const found = parts.findIndex(([, size]) => seconds >= size);
    const at = found < 0 ? parts.length - 1 : found;
    return parts.slice(at, at + 2).map(([unit, size], place) => {
      const count = Math.floor((place ? seconds % parts[at][1] : seconds) / size);
      return `${count} ${unit}`;
    }).filter((text, place) => !place || !text.startsWith("0 ")).join(" ");
  };

  // One attribute, the time itself, is the source of every distance.
  const tick = () => {
    if (document.hidden) return;
    all("[data-distance]").forEach((span) => {
      const seconds = Math.round((new Date(span.dataset.distance) - Date.now()) / 1000);
      const text = seconds >= 0 ? `in ${words(seconds)}` : `${words(-seconds)} ago`;
      if (span.textContent !== text) span.textContent = text;
    });
  };

  const zone = () => {
    const name = new Intl.DateTimeFormat([], { timeZoneName: "short" }).formatToParts()
      .find((part) => part.type === "timeZoneName");
    all("[data-zone]").forEach((span) => { span.textContent = name ? name.value : "local"; });
  };

  let current = -1;
  const rows = () => all("[data-row]");
  const move = (step) => {
    const list = rows();
    if (!list.length) return;
    if (list[current]) list[current].classList.remove("cur");
    current = Math.max(0, Math.min(list.length - 1, current + step));
    list[current].classList.add("cur");
    list[current].scrollIntoView({ block: "nearest" });
  };
  // The button of a key: in the row that is chosen, else on the page.
  const press = (key) => {
    const row = rows()[current];
    const button = (row && q(`[data-key="${key}"]`, row)) || (!row && q(`.main [data-key="${key}"]`))
      || (key === "u" && q(`.toast [data-key="u"]`));
    if (button) button.click();
  };
  const pages = { o: "/", n: "/notifications", q: "/retry-queue", f: "/failure-groups", d: "/dead-letters", b: "/retry-operations" };
  let going = false;

  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select, dialog, [data-shortcuts]") || event.metaKey || event.ctrlKey || event.altKey) return;
    if (going) {
      going = false;
      if (pages[event.key]) location.href = pages[event.key];
      return;
    }
    switch (event.key) {
      case "?": q("#keys").showModal(); break;
      case "/": if (q("#f")) { event.preventDefault(); q("#f").focus(); } break;
      case "j": move(1); break;
      case "k": move(-1); break;
      case "g": going = true; setTimeout(() => { going = false; }, 1500); break;
      case "Enter": if (rows()[current] && event.target === document.body) q("a", rows()[current]).click(); break;
      case "x": if (rows()[current] && q("[name=ids]", rows()[current])) q("[name=ids]", rows()[current]).click(); break;
      case ".": if (news) news.click(); break;
      case "r": case "d": case "u": press(event.key); break;
      default:
    }
  });
  document.addEventListener("click", (event) => {
    const open = event.target.closest("[data-open]");
    if (open) { event.preventDefault(); q(`#${open.dataset.open}`).showModal(); }
    const copy = event.target.closest("[data-copy]");
    if (copy) {
      const text = q("pre", copy.parentElement) || q(`#${copy.dataset.copy}`);
      navigator.clipboard.writeText(text.textContent).then(() => { copy.textContent = "Copied"; });
    }
  });
  all("[data-open]").forEach((button) => { button.hidden = false; });

  // A sentence about an act goes after 10 s, unless somebody reads it.
  const toast = q(".toast");
  if (toast) {
    let left = 10;
    const timer = setInterval(() => {
      if (toast.matches(":hover, :focus-within")) return;
      left -= 1;
      if (!left) { clearInterval(timer); toast.remove(); }
    }, 1000);
  }
  // Counters come over the stream; lists change only when they are asked for.
  const live = q("[data-live]");
  const figure = new Intl.NumberFormat("en");
  const show = (stats) => {
    all("[data-count]").forEach((link) => {
      const number = stats[link.dataset.count] || 0;
      let span = q(".n", link);
      if (!span && number) {
        span = document.createElement("span");
        span.className = link.dataset.count === "inDeadLetter" ? "n bad" : "n";
        link.append(span);
      }
      if (span) span.textContent = number ? figure.format(number) : "";
    });
  };
  // Rows that the list would show and does not. They are fetched when somebody asks.
  const news = q("[data-news]");
  const shown = new Set(rows().map((row) => row.dataset.row));
  const fresh = new Set();
  let inPart = !!news && "part" in news.dataset;
  const most = 1000;
  const heard = (change) => {
    const id = change[news.dataset.news];
    if (id && !shown.has(id) && !(id < news.dataset.last) && fresh.size < most) fresh.add(id);
  };
  const tell = () => {
    const at = inPart || fresh.size === most ? "at least " : "";
    const text = fresh.size ? `${at}${figure.format(fresh.size)} new, show` : inPart ? "there may be news, show" : "up to date";
    if (news.firstChild.data === text) return;
    news.classList.toggle("idle", !fresh.size);
    const key = document.createElement("kbd");
    key.textContent = ".";
    news.replaceChildren(text, ...(fresh.size ? [key] : []));
  };
  if (live && window.EventSource) {
    // One stream for all that a page shows, and none while nobody looks at it: a browser has few connections for a server.
    const wanted = q("[data-stream]");
    const address = new URL(wanted ? wanted.dataset.stream : "/v1/stream?events=stats", location);
    let stream, last, at;
    const say = (state, words, title) => {
      live.hidden = false;
      live.dataset.live = state;
      live.textContent = words;
      live.title = title;
    };
    const broken = () => {
      if (live.dataset.live === "off" && !live.hidden) return;
      const since = new Date(at || Date.now()).toTimeString().slice(0, 8);
      say("off", `Not live since ${since}`, "What the page shows is as old as that.");
    };
    const pass = (name) => (event) => {
      last = event.lastEventId;
      const data = JSON.parse(event.data);
      if (news && name === "missed") inPart = true;
      if (news && name === "change") heard(data);
      document.dispatchEvent(new CustomEvent(`live:${name}`, { detail: data }));
    };
    const open = () => {
      if (document.hidden || (stream && stream.readyState !== 2)) return;
      if (last) address.searchParams.set("lastEventId", last);
      at = Date.now();
      stream = new EventSource(address);
      stream.addEventListener("stats", (event) => {
        at = Date.now();
        last = event.lastEventId || last;
        // With a filter the figures are those of its tenant.
        if (!address.searchParams.has("tenant")) show(JSON.parse(event.data));
        // The first steps are over.
        if (q("[data-first]") && Object.keys(JSON.parse(event.data).channels).length) location.reload();
        say("on", "Live", "Connected. Counters are at most 1 s old.");
        if (news) tell();
      });
      stream.addEventListener("notification", pass("change"));
      stream.addEventListener("missed", pass("missed"));
      stream.addEventListener("error", broken);
    };
    const close = () => { if (stream) stream.close(); };
    // A stream that was refused is not opened again by the browser, and one whose server is gone says nothing.
    setInterval(() => {
      open();
      if (!document.hidden && Date.now() - at > 5000) broken();
    }, 5000);
    document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
    window.addEventListener("pagehide", close);
    window.addEventListener("pageshow", open);
    open();
  }

  // What is changed on the page for a new operation is counted again; one tick stands for all on the page.
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-again]")) q("#again").click();
    if (event.target.matches("[data-all]")) all("[name=ids]").forEach((tick) => { tick.checked = event.target.checked; });
  });
  all("[data-all]").forEach((tick) => { tick.hidden = false; });

  // The progress of an operation, each second, while somebody looks. Where its state changes, its buttons do, too.
  const poll = async () => {
    const part = q("[data-poll]");
    if (!part || document.hidden) return;
    const answer = await fetch(part.dataset.poll, { headers: { "HX-Request": "true" } }).catch(() => null);
    if (!answer || !answer.ok || q("dialog[open]")) return;
    const next = new DOMParser().parseFromString(await answer.text(), "text/html").body.firstElementChild;
    if (!next || next.dataset.state !== part.dataset.state) location.reload();
    else part.replaceWith(next);
  };
  setInterval(poll, 1000);

  // A row that was swapped in has its times in UTC, and takes over the mark and the focus of the row before it.
  let focused = null;
  document.addEventListener("focusin", (event) => { focused = event.target; });
  const takeOver = (row) => {
    if (rows()[current]) rows()[current].classList.add("cur");
    if (document.activeElement !== document.body || !focused || focused.isConnected) return;
    const next = q(".acts button", row) || q(".acts a", row) || q("a", row);
    if (next) next.focus();
  };
  new MutationObserver((changes) => {
    const added = changes.flatMap((change) => [...change.addedNodes]).filter((node) => node instanceof Element);
    added.filter((node) => node.matches("[data-row]")).forEach(takeOver);
    added.forEach((node) => localise(node));
    if (added.length) tick();
  }).observe(q("#main"), { childList: true, subtree: true });
  localise(document);
  zone();
  tick();
  setInterval(tick, 1000);
})();
