// The chart of the overview: figures under the cursor, dragging zooms and leads to the lists of that time.
(() => {
  "use strict";
  const host = document.querySelector("[data-series]");
  const zoomed = document.querySelector("[data-zoomed]");
  const under = document.querySelector("[data-under]");
  if (!host || !window.uPlot || !window.fetch) return;
  const said = under.textContent;
  const figure = new Intl.NumberFormat("en");
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

  // The lists of what was dragged over. Without it they are those of everything.
  const offer = (plot, whole) => {
    const { min, max } = plot.scales.x;
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

  const draw = (series) => {
    const points = series.data;
    const times = points.map((point) => Date.parse(point.at) / 1000);
    const lost = points.map((point) => point.deadLettered + point.failed);
    const text = colour(".chart .help", "color");
    const line = colour(".chart", "borderTopColor");
    const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const values = (_, all) => all.map((value) => figure.format(value));
    // Whole numbers only.
    const incrs = [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8].flatMap((one) => [one, 2 * one, 5 * one]);
    const times24 = (_, all, __, ___, step) => all.map((at) => (step < 86400 ? hour : day).format(at * 1000));
    const top = (_, min, max) => [0, Math.max(1, max)];
    const plot = new uPlot({
      width: host.clientWidth,
      height: 244,
      legend: { show: false },
      cursor: { y: false },
      scales: { delivered: { range: top }, lost: { range: top } },
      series: [
        {},
        { scale: "delivered", stroke: key("g"), width: 1.5, points: { show: false } },
        { scale: "lost", width: 0, fill: key("f"), paths: uPlot.paths.bars({ size: [0.75] }), points: { show: false } },
      ],
      axes: [
        { ...axis, values: times24 },
        { ...axis, scale: "delivered", values, incrs },
        { ...axis, scale: "lost", side: 1, values, incrs, grid: { show: false }, stroke: key("f") },
      ],
      hooks: {
        setScale: [(self, scale) => { if (scale === "x" && self.whole) offer(self, self.whole); }],
        setCursor: [(self) => {
          const point = points[self.cursor.idx];
          under.textContent = !point || self.cursor.left < 0 ? said : `From ${clock.format(times[self.cursor.idx] * 1000)}: `
            + `${figure.format(point.accepted)} accepted, ${figure.format(point.delivered)} delivered, ${figure.format(point.retried)} retries, `
            + `${figure.format(point.deadLettered)} dead letters, ${figure.format(point.failed)} failed`;
        }],
      },
    }, [times, points.map((point) => point.delivered), lost]);
    plot.whole = [times[0], times[times.length - 1]];
    return plot;
  };

  let plot = null;
  let shown = null;
  const again = () => {
    const next = draw(shown);
    if (plot) plot.destroy();
    plot = next;
    host.replaceChildren(plot.root);
  };
  fetch(host.dataset.series, { headers: { accept: "application/json" } })
    .then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error(answer.status))))
    .then((series) => {
      if (series.data.length < 2) return;
      shown = series;
      again();
      new ResizeObserver(() => plot.setSize({ width: host.clientWidth, height: 244 })).observe(host);
      window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
    })
    // The drawing of the server stays.
    .catch(() => {});
})();
