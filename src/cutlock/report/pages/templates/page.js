"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");

  // The choice of colours outlives the page where the browser lets it.
  const kept = (work) => { try { return work(); } catch { return null; } };
  const paint = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  const theme = kept(() => localStorage.getItem("cutlock-theme"));
  paint(theme);
  for (const input of document.querySelectorAll('input[name="theme"]')) {
    input.checked = input.value === (root.dataset.theme ?? "auto");
    input.addEventListener("change", () => {
      paint(input.value);
      kept(() => localStorage.setItem("cutlock-theme", input.value));
    });
  }

  const steps = [...document.querySelectorAll("li.step")];
  if (!steps.length) return;
  const find = (id) => document.getElementById(id);
  const dock = find("dock"), told = find("told"), more = find("more");
  const byNumber = new Map(steps.map((step, place) => [step.dataset.number, place]));
  let current = -1;
  let folded = false;

  const text = (tag, content, className) => {
    const made = document.createElement(tag);
    made.textContent = content;
    if (className) made.className = className;
    return made;
  };

  const said = (box) => box.dataset.told
    ?? [...box.classList].find((name) => name.startsWith("state-"))?.slice(6).replaceAll("-", " ")
    ?? box.querySelector("text")?.textContent ?? "";

  const chip = (box) => {
    const made = text("span", box.querySelector("text")?.textContent ?? "", "chip");
    made.classList.add(...[...box.classList].filter((name) => name.startsWith("state-")));
    return made;
  };

  // What is true after the step, read off the boxes of the picture.
  const table = (plot, number, step) => {
    const rows = new Map();
    const named = new Set((step.querySelector(".arguments")?.textContent ?? "").split(/[\s,]+/));
    for (const row of plot.querySelectorAll("[data-row]")) {
      const strips = {};
      for (const box of row.children) {
        const [first, last] = box.dataset.at.split(" ").map(Number);
        if (number < first || last < number) continue;
        strips[box.classList[1]] = box;
        strips.changed ||= first === number;
      }
      if (strips.live || strips.value || strips.rows || strips.disk) rows.set(row.dataset.row, strips);
    }
    const made = document.createElement("table");
    made.className = "now-table";
    const counts = text("p", "", "counts");
    for (const [name, strips] of rows) {
      if (!strips.value) continue;
      const count = text("span", `${name} `, strips.changed ? "changed" : "");
      count.append(text("b", said(strips.value)));
      counts.append(count, " ");
    }
    const others = [...rows].filter(([, strips]) => !strips.value);
    // Of many, first those that the step names or has changed.
    for (const [name, strips] of others) strips.changed ||= named.has(name);
    const prompts = [true, false].flatMap((wanted) => others.filter(([, strips]) => !!strips.changed === wanted));
    const rest = prompts.some(([, strips]) => strips.disk || strips.rows);
    const head = made.createTHead().insertRow();
    for (const title of rest ? ["", "after this step", "rows", "in the bundle"] : ["", "after this step"]) {
      head.append(text("th", title));
    }
    const body = made.createTBody();
    for (const [name, strips] of prompts) {
      const line = body.insertRow();
      line.append(text("th", name));
      if (strips.changed) line.className = "changed";
      const live = line.insertCell();
      if (strips.live) live.append(chip(strips.live), said(strips.live));
      if (!rest) continue;
      line.insertCell().textContent = strips.rows ? strips.rows.dataset.told.split(" ")[0] : "";
      const disk = line.insertCell();
      if (strips.disk) disk.append(chip(strips.disk), said(strips.disk));
    }
    return [counts, made];
  };

  const show = (place, { scroll = true, link = true } = {}) => {
    place = Math.max(0, Math.min(steps.length - 1, place));
    if (place === current) return;
    const step = steps[place], number = +step.dataset.number;
    const chapter = step.closest(".chapter"), scroller = chapter.querySelector(".scroller");
    const before = steps[current];
    if (before) {
      before.removeAttribute("aria-current");
      before.closest(".chapter").querySelector(".now").setAttribute("visibility", "hidden");
    }
    current = place;
    step.setAttribute("aria-current", "step");
    const { first, column } = scroller.dataset;
    const x = (number - first) * column;
    const now = scroller.querySelector(".now");
    now.setAttribute("x", x);
    now.setAttribute("visibility", "visible");
    const labels = scroller.querySelector(".labels").clientWidth;
    const seen = scroller.clientWidth - labels;
    if (x < scroller.scrollLeft + 2 * column || x > scroller.scrollLeft + seen - 4 * column) {
      scroller.scrollLeft = Math.max(0, x - seen / 2);
    }
    if (scroll) {
      const box = scroller.getBoundingClientRect();
      const free = innerHeight - dock.offsetHeight;
      // A picture that is seen in part is seen well enough; its lanes are at its top.
      if (box.top > free - 160 || box.bottom < 80) scroller.scrollIntoView({ block: "start" });
    }
    const action = step.querySelector(".action").textContent;
    const who = step.querySelector(".who").textContent;
    const bold = text("code", action);
    find("place").replaceChildren(`${number}`, text("span", ` of ${steps.at(-1).dataset.number}`, "wide"), " ", bold, text("span", ` ${who}`, "wide"));
    const card = step.cloneNode(true);
    card.removeAttribute("id");
    const list = document.createElement("div");
    list.append(...card.childNodes);
    list.className = `step lane-${[...step.classList].find((name) => name.startsWith("lane-")).slice(5)}`;
    find("card").replaceChildren(list);
    find("state").replaceChildren(...table(scroller.querySelector(".plot"), number, step));
    told.scrollTop = 0;
    find("spoken").textContent = `Step ${number}: ${action}, ${who}. ${step.querySelector(".broken-text")?.textContent ?? ""}`;
    if (scroll && !folded && innerWidth >= 900) fold(true);
    if (link) kept(() => history.replaceState(null, "", `#step-${number}`));
  };

  const fold = (open) => {
    told.hidden = !open;
    more.setAttribute("aria-expanded", String(open));
  };

  const linked = () => byNumber.get(location.hash.replace("#step-", ""));
  const go = {
    ArrowLeft: () => show(current - 1), k: () => show(current - 1),
    ArrowRight: () => show(current + 1), j: () => show(current + 1),
    Home: () => show(0), End: () => show(steps.length - 1),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (event.target.closest("input, textarea, select")) return;
    const move = go[event.key];
    if (!move) return;
    event.preventDefault();
    move();
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a.column, a.permalink");
    if (!link) return;
    event.preventDefault();
    show(byNumber.get(link.getAttribute("href").replace("#step-", "")), { scroll: false });
  });
  addEventListener("hashchange", () => { if (linked() !== undefined) show(linked(), { link: false }); });
  find("previous").addEventListener("click", () => show(current - 1));
  find("next").addEventListener("click", () => show(current + 1));
  find("to-breach")?.addEventListener("click", (event) => show(byNumber.get(event.currentTarget.dataset.step)));
  more.addEventListener("click", () => {
    folded = !told.hidden;
    fold(told.hidden);
  });

  fold(false);
  dock.hidden = false;
  const breach = find("to-breach")?.dataset.step;
  const wanted = linked();
  show(wanted ?? byNumber.get(breach) ?? 0, { scroll: wanted !== undefined, link: false });
})();
