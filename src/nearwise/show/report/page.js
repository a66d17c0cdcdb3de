"use strict";
{
  const tip = document.body.appendChild(document.createElement("div"));
  tip.className = "tip";
  tip.setAttribute("role", "status");
  const plots = [...document.querySelectorAll("svg.live")].map((svg) => {
    const ring = svg.appendChild(document.createElementNS(svg.namespaceURI, "circle"));
    ring.setAttribute("class", "ring");
    const marks = [...svg.querySelectorAll("path > title")].map((title) => {
      const [x, y] = title.parentNode.getAttribute("d").match(/-?[\d.]+/g).map(Number);
      return { x, y, text: title.textContent };
    });
    svg.classList.add("on");
    svg.tabIndex = 0;
    return { svg, ring, marks, chosen: -1 };
  });

  const scale = (plot) => plot.svg.getBoundingClientRect().width / plot.svg.viewBox.baseVal.width;

  const place = (plot) => {
    const mark = plot.marks[plot.chosen];
    if (!mark) return;
    const box = plot.svg.getBoundingClientRect();
    const x = box.left + mark.x * scale(plot), y = box.top + mark.y * scale(plot);
    const left = Math.max(8, Math.min(x + 12, innerWidth - tip.offsetWidth - 8));
    const top = y - tip.offsetHeight - 12;
    tip.style.left = `${left}px`;
    tip.style.top = `${top < 8 ? y + 14 : top}px`;
  };

  const choose = (plot, k) => {
    for (const other of plots) {
      const same = other === plot || other.svg.dataset.group === plot.svg.dataset.group;
      other.chosen = same ? k : -1;
      const mark = same ? other.marks[k] : undefined;
      other.ring.setAttribute("r", mark ? 6 : 0);
      if (mark) {
        other.ring.setAttribute("cx", mark.x);
        other.ring.setAttribute("cy", mark.y);
      }
    }
    tip.textContent = plot.marks[k] ? plot.marks[k].text : "";
    place(plot);
  };

  const nearest = (marks, x, y, cost) => {
    let best = -1, least = Infinity;
    marks.forEach((mark, k) => {
      const value = cost(mark.x - x, mark.y - y);
      if (value < least) [best, least] = [k, value];
    });
    return best;
  };

  const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

  for (const plot of plots) {
    const { svg, marks } = plot;
    const point = (event) => {
      const box = svg.getBoundingClientRect();
      const reach = (event.pointerType === "mouse" ? 12 : 24) / scale(plot);
      const x = (event.clientX - box.left) / scale(plot), y = (event.clientY - box.top) / scale(plot);
      const far = (dx, dy) => (Math.hypot(dx, dy) > reach ? Infinity : Math.hypot(dx, dy));
      choose(plot, nearest(marks, x, y, far));
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && choose(plot, -1));
    svg.addEventListener("blur", () => choose(plot, -1));
    svg.addEventListener("keydown", (event) => {
      if (event.key === "Escape") choose(plot, -1);
      if (!(event.key in arrows)) return;
      event.preventDefault();
      const [right, down] = arrows[event.key];
      const from = marks[plot.chosen];
      const ahead = (dx, dy) => {
        const along = dx * right + dy * down, aside = Math.abs(dx * down) + Math.abs(dy * right);
        return along > 0.05 ? along + 2 * aside : Infinity;
      };
      const next = from ? nearest(marks, from.x, from.y, ahead) : 0;
      if (next >= 0) choose(plot, next);
    });
  }
  const forget = () => plots.forEach((plot) => plot.chosen >= 0 && choose(plot, -1));
  // A mark that keys chose stays chosen: the browser scrolls a plot into view after it has the focus.
  const follow = () => {
    const focused = plots.find((plot) => plot.svg === document.activeElement);
    if (focused) place(focused);
    else forget();
  };
  addEventListener("scroll", follow, { passive: true });
  addEventListener("pointerdown", (event) => event.target.closest("svg.live") || forget());

  for (const button of document.querySelectorAll(".classes button")) {
    button.disabled = false;
    button.addEventListener("click", () => {
      const pressed = button.getAttribute("aria-pressed") !== "true";
      const area = button.closest(".maps");
      for (const other of area.querySelectorAll("button")) other.setAttribute("aria-pressed", "false");
      button.setAttribute("aria-pressed", String(pressed));
      for (const mark of area.querySelectorAll(".two .marks path")) {
        mark.classList.toggle("faded", pressed && !mark.classList.contains(button.dataset.class));
      }
    });
  }
}
