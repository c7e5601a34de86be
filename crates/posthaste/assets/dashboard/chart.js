// Charts: figures under the cursor, dragging zooms. That of the overview leads to the lists of the time that was chosen.
(() => {
  "use strict";
  const host = document.querySelector("[data-series], [data-load]");
  const zoomed = document.querySelector("[data-zoomed]");
  const under = document.querySelector("[data-under]");
  if (!host || !window.uPlot || !window.fetch) return;
  const said = under.textContent;
  const figure = new Intl.NumberFormat("en");
  const figures = (...parts) => parts.map(([count, what]) => `${figure.format(count)} ${what}`).join(", ");
  const time = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  const hour = new Intl.DateTimeFormat([], time);
  const day = new Intl.DateTimeFormat([], { day: "numeric", month: "short" });
  const clock = new Intl.DateTimeFormat([], { weekday: "short", ...time });

  // What the style sheets made of a colour. It follows the theme.
  const colour = (selector, property, pseudo) => {
    const found = document.querySelector(selector);
    return found ? getComputedStyle(found, pseudo)[property] : "#888";
  };
  const key = (name) => colour(`.chart .key.${name}`, "backgroundColor", "::before");
  const line = (scale, name) => ({ scale, stroke: key(name), width: 1.5, points: { show: false } });
  const bars = (scale, name) => ({ scale, width: 0, fill: key(name), paths: uPlot.paths.bars({ size: [0.75] }), points: { show: false } });

  // The lists of what was dragged over. Without it they are those of everything.
  const offer = ({ min, max }, whole) => {
    const part = min > whole[0] || max < whole[1];
    zoomed.hidden = !part;
    if (!part) return;
    const time = `since=${new Date(min * 1000).toISOString()}&until=${new Date(max * 1000).toISOString()}`;
    zoomed.querySelectorAll("a").forEach((link) => {
      const from = link.dataset.from;
      link.href = `${from}${from.includes("?") ? "&" : "?"}${time}`;
    });
    const link = zoomed.querySelector("a");
    link.textContent = `Accepted ${clock.format(min * 1000)} to ${clock.format(max * 1000)}`;
    link.focus({ preventScroll: true });
  };

  // Throughput and failures: what is drawn, and what the place under the cursor tells.
  const throughput = ({ data: points }) => {
    const times = points.map((point) => Date.parse(point.at) / 1000);
    return {
      columns: [times, points.map((point) => point.delivered), points.map((point) => point.deadLettered + point.failed)],
      scales: ["delivered", "lost"],
      series: () => [line("delivered", "g"), bars("lost", "f")],
      right: "f",
      x: { values: (_, all, __, ___, step) => all.map((at) => (step < 86400 ? hour : day).format(at * 1000)) },
      tells: (at) => `From ${clock.format(times[at] * 1000)}: ${figures(
        [points[at].accepted, "accepted"], [points[at].delivered, "delivered"], [points[at].retried, "retries"],
        [points[at].deadLettered, "dead letters"], [points[at].failed, "failed"])}`,
      chosen: offer,
    };
  };

  // 5,400 seconds are 1h 30m.
  const units = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
  const length = (seconds) => {
    const words = units.map(([size, unit]) => {
      const count = Math.floor(seconds / size);
      seconds -= count * size;
      return count ? ` ${count}${unit}` : "";
    });
    return words.join("").trim() || "0s";
  };

  // The load of a simulated outage, in virtual time.
  const load = ({ at: times, arrivals, sends, failures, parked, waiting }) => ({
    columns: [times, sends.map((count, at) => count - failures[at]), failures, parked],
    scales: ["sends", "parked"],
    series: () => [line("sends", "g"), bars("sends", "f"), line("parked", "q")],
    right: "q",
    x: { values: (_, all) => all.map(length), incrs: units.flatMap(([size]) => [1, 2, 5, 10, 30].map((one) => one * size)).sort((a, b) => a - b) },
    tells: (at) => `From ${length(times[at])}: ${figures([arrivals[at], "arrivals"], [sends[at], "sends"], [failures[at], "failed"],
      [parked[at], "parked"], [waiting[at], "waiting"])}`,
  });

  const draw = (shown) => {
    const text = colour(".chart .help", "color");
    const axis = { stroke: text, grid: { stroke: colour(".chart", "borderTopColor"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const values = (_, all) => all.map((value) => figure.format(value));
    // Whole numbers only.
    const incrs = [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8].flatMap((one) => [one, 2 * one, 5 * one]);
    const range = (_, min, max) => [0, Math.max(1, max)];
    const [left, right] = shown.scales;
    const times = shown.columns[0];
    const plot = new uPlot({
      width: host.clientWidth,
      height: 244,
      legend: { show: false },
      cursor: { y: false },
      scales: { x: { time: !shown.x.incrs }, [left]: { range }, [right]: { range } },
      series: [{}, ...shown.series()],
      axes: [
        { ...axis, ...shown.x },
        { ...axis, scale: left, values, incrs },
        { ...axis, scale: right, side: 1, values, incrs, grid: { show: false }, stroke: key(shown.right) },
      ],
      hooks: {
        setScale: [(self, scale) => { if (scale === "x" && self.whole && shown.chosen) shown.chosen(self.scales.x, self.whole); }],
        setCursor: [({ cursor }) => {
          under.textContent = times[cursor.idx] === undefined || cursor.left < 0 ? said : shown.tells(cursor.idx);
        }],
      },
    }, shown.columns);
    plot.whole = [times[0], times[times.length - 1]];
    plot.root.setAttribute("role", "img");
    plot.root.setAttribute("aria-label", said);
    return plot;
  };

  const start = (shown) => {
    if (shown.columns[0].length < 2) return;
    let plot = null;
    const again = () => {
      const next = draw(shown);
      if (plot) plot.destroy();
      plot = next;
      host.replaceChildren(plot.root);
    };
    again();
    new ResizeObserver(() => plot.setSize({ width: host.clientWidth, height: 244 })).observe(host);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  };

  if (host.dataset.load) {
    start(load(JSON.parse(host.dataset.load)));
    return;
  }
  fetch(host.dataset.series)
    .then((answer) => (answer.ok ? answer.json() : Promise.reject()))
    .then((series) => start(throughput(series)))
    // The drawing of the server stays.
    .catch(() => {});
})();
