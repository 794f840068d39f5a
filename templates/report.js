"use strict";
(() => {
  const root = document.documentElement;
  const report = JSON.parse(document.getElementById("oomctl-report").textContent);
  const reports = [report, ...(report.others || [])];
  const tip = document.querySelector(".tip");
  const SVG = "http://www.w3.org/2000/svg";
  const WIDE = 2000, HIGH = 400, SHELF = 20;
  const all = (query, from = document) => [...from.querySelectorAll(query)];
  const make = (name, attributes, parent) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return parent.appendChild(node);
  };
  const size = (bytes) => {
    let value = Math.abs(bytes);
    if (value < 1024) return `${bytes} B`;
    for (const unit of ["KiB", "MiB", "GiB", "TiB", "PiB"]) {
      value /= 1024;
      if (value < 1023.995 || unit === "PiB") return `${bytes < 0 ? "-" : ""}${value.toFixed(2)} ${unit}`;
    }
    return "";
  };
  const count = (number) => Math.round(number).toLocaleString("en-US");
  const show = (text) => String(text).replace(/[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`).slice(0, 200);

  // The tip: rows of [colour key or "", label, text].
  const tell = (x, y, head, rows) => {
    tip.replaceChildren();
    const b = document.createElement("b");
    b.textContent = head;
    tip.append(b);
    for (const [key, label, text] of rows) {
      const div = document.createElement("div");
      if (key) {
        const swatch = make("svg", { class: "swatch" }, div);
        make("rect", { width: "100%", height: "100%", class: `f-${key}` }, swatch);
      }
      const span = document.createElement("span");
      span.textContent = label;
      div.append(span, document.createTextNode(text));
      tip.append(div);
    }
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
    tip.style.top = `${Math.max(4, y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18)}px`;
  };
  const hush = () => { tip.hidden = true; };
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hush(); });
  document.addEventListener("scroll", hush, { passive: true });

  // Theme: auto, light, dark.
  const themes = ["auto", "light", "dark"];
  const button = document.querySelector(".theme");
  const dress = (theme) => {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    button.dataset.theme = theme;
  };
  let kept = "auto";
  try { kept = localStorage.getItem("oomctl-theme") || "auto"; } catch { /* no storage for files: the choice is not kept */ }
  dress(themes.includes(kept) ? kept : "auto");
  button.hidden = false;
  button.addEventListener("click", () => {
    const next = themes[(themes.indexOf(button.dataset.theme) + 1) % 3];
    dress(next);
    try { localStorage.setItem("oomctl-theme", next); } catch { /* as above */ }
  });

  // Copy buttons.
  for (const copy of all(".copy")) {
    copy.hidden = false;
    copy.addEventListener("click", async () => {
      const text = copy.parentNode.querySelector("pre").textContent;
      try { await navigator.clipboard.writeText(text); } catch {
        const area = document.createElement("textarea");
        area.value = text;
        document.body.append(area);
        area.select();
        document.execCommand("copy");
        area.remove();
      }
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    });
  }

  // One device at a time.
  const devices = all(".device");
  const links = all(".switch a");
  const turn = (id) => {
    for (const device of devices) device.classList.toggle("shown", device.id === id);
    for (const link of links) link.setAttribute("aria-current", String(link.hash === `#${id}`));
    const own = devices.findIndex((device) => device.id === id);
    for (const link of all(".top nav a")) {
      const bare = link.hash.slice(1).replace(/^d\d+-/, "");
      const wanted = (own ? `d${own}-` : "") + bare;
      link.hidden = !document.getElementById(wanted);
      link.hash = wanted;
    }
  };
  const follow = () => {
    const target = document.getElementById(location.hash.slice(1));
    const device = target && target.closest(".device");
    if (device && !device.classList.contains("shown")) { turn(device.id); target.scrollIntoView(); }
  };
  if (devices.length > 1) {
    document.body.classList.add("switched");
    turn(devices[0].id);
    for (const link of links) link.addEventListener("click", (event) => {
      event.preventDefault();
      history.replaceState(null, "", link.hash);
      turn(link.hash.slice(1));
    });
    addEventListener("hashchange", follow);
    follow();
  }

  // Choosing an owner marks it in every picture of its device.
  for (const device of devices) {
    let chosen = "";
    for (const item of all("[data-owner]", device)) {
      const choose = (event) => {
        if (event.target.closest("details, a")) return;
        chosen = chosen === item.dataset.owner ? "" : item.dataset.owner;
        device.classList.toggle("dim", chosen !== "");
        for (const part of all("[data-key]", device)) part.classList.toggle("chosen", part.dataset.key === chosen);
        for (const part of all("[data-owner]", device)) {
          part.classList.toggle("chosen", part.dataset.owner === chosen);
          const toggle = part.querySelector(".key");
          if (toggle) toggle.setAttribute("aria-pressed", String(part.dataset.owner === chosen));
        }
      };
      item.addEventListener("click", choose);
      if (item.tagName === "LI") {
        const toggle = document.createElement("button");
        toggle.type = "button";
        toggle.className = "key";
        toggle.setAttribute("aria-pressed", "false");
        toggle.append(...item.childNodes);
        item.append(toggle);
      }
    }
  }

  const path = (xs, values, top, closed) => {
    const y = (value) => HIGH - Math.round((Math.min(Math.max(value, 0), top) * HIGH) / top);
    let text = closed ? `M${xs[0]} ${HIGH}V${y(values[0])}` : `M${xs[0]} ${y(values[0])}`;
    for (let i = 1; i < xs.length; i++) text += `H${xs[i]}V${y(values[i])}`;
    return closed ? `${text}V${HIGH}z` : text;
  };

  // The timeline: cursor, zoom, event or clock axis.
  const timeline = (figure, data) => {
    const frame = figure.querySelector(".frame");
    const inner = figure.querySelector(".inner");
    const axis = figure.querySelector(".axis");
    const areas = all(".inner path:not(.line)", figure);
    const line = figure.querySelector(".inner .line");
    const bands = [...data.bands].sort((a, b) => (a.rank || 1e6) - (b.rank || 1e6));
    const key = (rank) => (rank > 0 ? `o${Math.min(rank, 8)}` : "o0");
    const highest = Math.max(...data.active, ...data.reserved, 1);
    const top = Math.round((data.limit && data.limit <= highest * 1.5 ? Math.max(highest, data.limit) : highest) * 1.04);
    const marks = [...data.steps, ...data.ooms];
    const markLines = all("[data-mark]", frame);
    let clock = false, positions = data.event, from = 0, to = 1, at = data.event.length - 1;
    const low = () => positions[0];
    const span = () => Math.max(positions[positions.length - 1] - positions[0], 1);
    const place = (mark) => {
      if (!clock) return mark.event;
      if (mark.time_us != null) return mark.time_us;
      let i = data.event.findIndex((event) => event >= mark.event);
      if (i < 0) i = data.event.length - 1;
      return data.time_us[i];
    };
    const seconds = (value) => `${((value - data.time_us[0]) / 1e6).toFixed(span() * (to - from) > 2e7 ? 1 : 3)} s`;
    const label = (value) => (clock ? seconds(value) : count(value));
    const draw = () => {
      inner.setAttribute("viewBox", `${from * WIDE} 0 ${(to - from) * WIDE} ${HIGH}`);
      markLines.forEach((node) => {
        const share = ((place(marks[Number(node.dataset.mark)]) - low()) / span() - from) / (to - from);
        node.setAttribute("x1", `${share * 100}%`);
        node.setAttribute("x2", `${share * 100}%`);
      });
      all("text", axis).forEach((text, i) => {
        text.textContent = (i || clock ? "" : "event ") + label(low() + span() * (from + ((to - from) * i) / 4));
      });
    };
    const redraw = () => {
      positions = clock ? data.time_us : data.event;
      const xs = positions.map((value) => Math.round(((value - low()) * WIDE) / span()));
      const sums = [];
      for (const band of bands) sums.push(band.values.map((value, i) => value + (sums.length ? sums[sums.length - 1][i] : 0)));
      areas.forEach((node, i) => node.setAttribute("d", path(xs, sums[bands.length - 1 - i], top, true)));
      if (line) line.setAttribute("d", path(xs, data.reserved, top, false));
      draw();
    };
    const zoom = (a, b) => {
      const least = 1 / 200;
      from = Math.max(0, Math.min(a, 1 - least));
      to = Math.min(1, Math.max(b, from + least));
      draw();
      point(null);
    };
    const about = (factor) => {
      const middle = Math.min(Math.max((positions[at] - low()) / span(), from), to);
      const wide = Math.min((to - from) * factor, 1);
      const share = (middle - from) / (to - from);
      let a = middle - wide * share;
      a = Math.max(0, Math.min(a, 1 - wide));
      zoom(a, a + wide);
    };
    const cursor = make("line", { class: "cursor", y2: "100%", visibility: "hidden" }, frame);
    const point = (where) => {
      const share = ((positions[at] - low()) / span() - from) / (to - from);
      cursor.setAttribute("x1", `${share * 100}%`);
      cursor.setAttribute("x2", `${share * 100}%`);
      cursor.setAttribute("visibility", where && share >= 0 && share <= 1 ? "visible" : "hidden");
      if (!where) { hush(); return; }
      const rows = bands.map((band) => [key(band.rank), show(band.label), size(band.values[at])]);
      rows.unshift(["", "live", size(data.active[at])], ["", "reserved", size(data.reserved[at])]);
      const when = `event ${count(data.event[at])}${data.time_us ? `, ${((data.time_us[at] - data.time_us[0]) / 1e6).toFixed(3)} s` : ""}`;
      tell(where.x, where.y, when, rows);
    };
    const share = (event) => {
      const box = frame.getBoundingClientRect();
      return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    };
    const nearest = (part) => {
      const wanted = low() + span() * (from + (to - from) * part);
      let a = 0, b = positions.length - 1;
      while (b - a > 1) { const m = (a + b) >> 1; if (positions[m] <= wanted) a = m; else b = m; }
      at = wanted - positions[a] <= positions[b] - wanted ? a : b;
    };
    let start = null;
    const brush = make("rect", { class: "brush", height: "100%", visibility: "hidden" }, frame);
    frame.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch" || event.button) return;
      start = share(event);
      frame.setPointerCapture(event.pointerId);
    });
    frame.addEventListener("pointermove", (event) => {
      const now = share(event);
      if (start !== null) {
        brush.setAttribute("x", `${Math.min(start, now) * 100}%`);
        brush.setAttribute("width", `${Math.abs(now - start) * 100}%`);
        brush.setAttribute("visibility", "visible");
      }
      nearest(now);
      point({ x: event.clientX, y: event.clientY });
    });
    frame.addEventListener("pointerup", (event) => {
      const now = share(event);
      brush.setAttribute("visibility", "hidden");
      if (start !== null && Math.abs(now - start) > 0.01) {
        const wide = to - from;
        zoom(from + wide * Math.min(start, now), from + wide * Math.max(start, now));
      }
      start = null;
    });
    frame.addEventListener("pointerleave", () => point(null));
    figure.addEventListener("blur", () => point(null));
    frame.addEventListener("dblclick", () => zoom(0, 1));
    figure.addEventListener("keydown", (event) => {
      if (event.target !== figure) return;
      const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -1e9, End: 1e9 };
      if (event.key in moves) {
        at = Math.min(Math.max(at + moves[event.key], 0), positions.length - 1);
        const part = (positions[at] - low()) / span();
        if (part < from || part > to) {
          const wide = to - from, a = Math.max(0, Math.min(part - wide / 2, 1 - wide));
          from = a; to = a + wide; draw();
        }
        const box = frame.getBoundingClientRect();
        point({ x: box.left + (box.width * (part - from)) / (to - from), y: box.top + 30 });
      } else if (event.key === "+" || event.key === "=") about(0.5);
      else if (event.key === "-") about(2);
      else if (event.key === "0") zoom(0, 1);
      else return;
      event.preventDefault();
    });
    const tools = figure.querySelector(".tools");
    tools.hidden = false;
    for (const tool of all("button", tools)) tool.addEventListener("click", () => {
      if (tool.dataset.do === "all") zoom(0, 1); else about(tool.dataset.do === "in" ? 0.5 : 2);
    });
    const select = tools.querySelector("select");
    if (select) select.addEventListener("change", () => { clock = select.value === "clock"; from = 0; to = 1; redraw(); });
  };

  // The segment map: which piece lies under the pointer; arrow keys go from piece to piece.
  const segments = (figure, data) => {
    const map = figure.querySelector(".map");
    const picked = figure.querySelector(".picked");
    const scale = Number(figure.dataset.scale), height = Number(figure.dataset.height);
    const pieces = [];
    let shelf = 0, start = 0;
    for (const segment of data.segments) {
      if (start && start + segment.size > scale) { shelf += 1; start = 0; }
      let at = start;
      for (const piece of segment.pieces) { pieces.push({ segment, piece, shelf, at }); at += piece.size; }
      start += segment.size;
    }
    const box = make("rect", { class: "chosenpiece", visibility: "hidden" }, map);
    const names = { idle: "idle", live: "live", pending: "freed, waiting for another stream", idle_other_stream: "idle, of another stream", idle_private_pool: "idle, in a private pool", mixed: "several blocks" };
    let now = -1;
    const facts = ({ segment, piece }) => [
      ["", "piece", `${names[piece.state] || piece.state}, ${size(piece.size)}`],
      ...(piece.state === "mixed" ? [["", "live in it", size(piece.live || 0)]] : []),
      ...(piece.label ? [["", "by", show(piece.label)]] : []),
      ["", "segment", `${size(segment.size)}, live ${size(segment.live)}`],
      ["", "stream", segment.stream === "0x0" ? "default" : segment.stream],
      ...(segment.pool_id[0] || segment.pool_id[1] ? [["", "private pool", segment.pool_id.join(".")]] : []),
    ];
    const choose = (index, where) => {
      now = index;
      const { segment, piece, shelf: row, at } = pieces[index];
      for (const [k, v] of Object.entries({ x: (at * WIDE) / scale, y: row * SHELF + 1, width: Math.max((piece.size * WIDE) / scale, 1), height: SHELF - 2, visibility: "visible" })) box.setAttribute(k, v);
      const rows = facts(pieces[index]);
      if (where) tell(where.x, where.y, segment.address, rows);
      return rows;
    };
    const find = (event) => {
      const frame = map.getBoundingClientRect();
      const row = Math.floor(((event.clientY - frame.top) / frame.height) * (height / SHELF));
      const at = ((event.clientX - frame.left) / frame.width) * scale;
      return pieces.findIndex((one) => one.shelf === row && one.at <= at && at < one.at + one.piece.size);
    };
    map.addEventListener("pointermove", (event) => {
      const index = find(event);
      if (index < 0) { box.setAttribute("visibility", "hidden"); hush(); } else choose(index, { x: event.clientX, y: event.clientY });
    });
    map.addEventListener("pointerleave", () => { box.setAttribute("visibility", "hidden"); hush(); });
    const pick = (index) => {
      if (index < 0) return;
      const rows = choose(index, null);
      picked.textContent = `${pieces[index].segment.address}: ${rows.map(([, label, text]) => `${label} ${text}`).join("; ")}.`;
    };
    map.addEventListener("click", (event) => pick(find(event)));
    figure.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.target !== figure || !step) return;
      event.preventDefault();
      pick(Math.min(Math.max(now + step, 0), pieces.length - 1));
    });
  };

  for (const figure of all("[data-plot]")) {
    const data = reports[Number(figure.closest(".device").dataset.device)];
    if (figure.dataset.plot === "timeline" && data.timeline) timeline(figure, data.timeline);
    if (figure.dataset.plot === "segments" && data.segment_map) segments(figure, data.segment_map);
  }
  root.dataset.ready = "true";
})();
