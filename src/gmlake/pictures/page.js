"use strict";
// Brings a page to life: draws its pictures, and lets buttons and keys do what the mouse can.
(() => {
    const ZOOM = 0.6;
    const STEP = 0.2;
    const LIGHT = { ink: "#1c2128", faint: "#59616d", line: "#d5dae1" };
    const DARK = { ink: "#e4e8ee", faint: "#a3acb9", line: "#363d48" };
    const darkness = window.matchMedia("(prefers-color-scheme: dark)");
    const plots = [];
    const pictures = [...document.querySelectorAll('script[type="application/json"]')];

    // ---- pictures

    async function draw(data) {
        const item = JSON.parse(data.textContent);
        data.textContent = "";
        const views = await Bokeh.embed.embed_item(item);
        const plot = [...views][0].model;
        const box = document.getElementById(item.target_id);
        plots.push(plot);
        paint(plot, darkness.matches ? DARK : LIGHT);
        offerControls(box, plot);
        offerChoices(box, plot);
        offerDetails(plot);
        box.dataset.ready = "true";
        if (plots.length === 1) {
            noteTime("gmlake-first");
        }
    }

    const begun = new Map();

    function drawOnce(data) {
        if (!begun.has(data)) {
            begun.set(data, draw(data));
        }
        return begun.get(data);
    }

    // One after the other, so that the first is seen and can be used at once; what is scrolled to
    // does not wait for its turn.
    async function drawAll() {
        const watch = new IntersectionObserver(
            (entries) =>
                entries
                    .filter((entry) => entry.isIntersecting)
                    .forEach((entry) => drawOnce(entry.target.nextElementSibling)),
            { rootMargin: "200px" }
        );
        pictures.forEach((data) => watch.observe(data.previousElementSibling));
        for (const data of pictures) {
            await drawOnce(data);
            await new Promise((resolve) => setTimeout(resolve));
        }
        watch.disconnect();
        document.documentElement.dataset.ready = "true";
        noteTime("gmlake-all");
    }

    // Notes when what is drawn by then can be seen, for those who measure.
    function noteTime(name) {
        requestAnimationFrame(() => setTimeout(() => performance.mark(name)));
    }

    function paint(plot, colours) {
        for (const axis of [...plot.below, ...plot.left]) {
            axis.axis_label_text_color = colours.faint;
            axis.axis_label_text_font_style = "normal";
            axis.major_label_text_color = colours.ink;
            axis.axis_line_color = colours.line;
            axis.major_tick_line_color = colours.line;
            axis.minor_tick_line_color = null;
        }
        for (const part of plot.center) {
            if ("grid_line_color" in part) {
                part.grid_line_color = colours.line;
            }
        }
    }

    function paintAll(colours) {
        for (const plot of plots) {
            paint(plot, colours);
        }
    }

    // ---- zoom

    function limits(range) {
        return { low: range.bounds[0], high: range.bounds[1] };
    }

    function show(range, start, end) {
        const { low, high } = limits(range);
        const width = Math.min(end - start, high - low);
        if (width < range.min_interval) {
            return;
        }
        const from = Math.min(Math.max(start, low), high - width);
        range.setv({ start: from, end: from + width });
    }

    function zoom(range, factor) {
        const middle = (range.start + range.end) / 2;
        const half = ((range.end - range.start) / 2) * factor;
        show(range, middle - half, middle + half);
    }

    function move(range, share) {
        const by = (range.end - range.start) * share;
        show(range, range.start + by, range.end + by);
    }

    function act(plot, axes, what) {
        const ranges = axes === "xy" ? [plot.x_range, plot.y_range] : [plot.x_range];
        const actions = {
            in: () => ranges.forEach((range) => zoom(range, ZOOM)),
            out: () => ranges.forEach((range) => zoom(range, 1 / ZOOM)),
            left: () => move(plot.x_range, -STEP),
            right: () => move(plot.x_range, STEP),
            up: () => axes === "xy" && move(plot.y_range, STEP),
            down: () => axes === "xy" && move(plot.y_range, -STEP),
            reset: () =>
                [plot.x_range, plot.y_range].forEach((range) =>
                    show(range, limits(range).low, limits(range).high)
                ),
        };
        actions[what]();
    }

    const KEYS = {
        "+": "in", "=": "in", "-": "out", "0": "reset", Home: "reset",
        ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down",
    };

    function offerControls(box, plot) {
        const section = box.closest("section");
        const axes = box.dataset.axes;
        for (const button of section.querySelectorAll("button[data-act]")) {
            button.addEventListener("click", () => act(plot, axes, button.dataset.act));
        }
        box.addEventListener("keydown", (event) => {
            const what = KEYS[event.key];
            const isVertical = what === "up" || what === "down";
            if (!what || event.ctrlKey || event.metaKey || event.altKey || (isVertical && axes === "x")) {
                return;
            }
            act(plot, axes, what);
            event.preventDefault();
        });
        for (const button of section.querySelectorAll("button[data-name]")) {
            button.addEventListener("click", () => toggle(button, plot));
        }
    }

    function toggle(button, plot) {
        const isShown = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(isShown));
        for (const part of [...plot.renderers, ...plot.center]) {
            if (part.name === button.dataset.name) {
                part.visible = isShown;
            }
        }
    }

    // ---- one view of many

    function offerChoices(box, plot) {
        const select = box.closest("section").querySelector("select");
        const bars = plot.renderers.find((part) => part.name === "views");
        if (!select || !bars) {
            return;
        }
        const source = bars.data_source;
        const owners = Array.from(source.data.get ? source.data.get("view") : source.data.view);
        const choose = (owner) => {
            const chosen = owners.flatMap((value, index) => (value === owner ? [index] : []));
            if (chosen.length !== source.selected.indices.length) {
                source.selected.indices = chosen;
            }
        };
        select.addEventListener("change", () => choose(select.value === "" ? null : Number(select.value)));
        source.selected.properties.indices.change.connect(() => {
            const [first] = source.selected.indices;
            select.value = first === undefined ? "" : String(owners[first]);
            choose(first === undefined ? null : owners[first]);
        });
    }

    // ---- what is to be changed of one object

    function offerDetails(plot) {
        const bars = plot.renderers.find((part) => part.name === "lifelines");
        const input = document.querySelector("section.found input[type=search]");
        if (!bars || !input) {
            return;
        }
        const source = bars.data_source;
        const names = Array.from(source.data.get ? source.data.get("name") : source.data.name);
        source.selected.properties.indices.change.connect(() => {
            const [first] = source.selected.indices;
            input.value = first === undefined ? "" : names[first];
            input.dispatchEvent(new Event("input"));
        });
    }

    // ---- tables

    function valueOf(row, column, isNumber) {
        const text = row.cells[column].dataset.value;
        return isNumber ? Number(text) : text.toLowerCase();
    }

    function sort(table, head) {
        const isNumber = head.dataset.kind === "number";
        const before = head.getAttribute("aria-sort");
        const first = isNumber ? "descending" : "ascending";
        const second = isNumber ? "ascending" : "descending";
        const order = before === first ? second : first;
        for (const other of table.tHead.rows[0].cells) {
            other.removeAttribute("aria-sort");
        }
        head.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        const keyed = [...table.tBodies[0].rows].map((row) => [valueOf(row, head.cellIndex, isNumber), row]);
        keyed.sort(([a], [b]) => (a < b ? -sign : a > b ? sign : 0));
        table.tBodies[0].append(...keyed.map(([, row]) => row));
    }

    function offerSearch(input) {
        const section = input.closest("section");
        const said = section.querySelector("output");
        const all = said.textContent;
        const rows = [...section.querySelector("tbody").rows];
        const texts = rows.map((row) => row.textContent.toLowerCase());
        input.addEventListener("input", () => {
            const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
            let shown = 0;
            rows.forEach((row, index) => {
                row.hidden = !words.every((word) => texts[index].includes(word));
                shown += row.hidden ? 0 : 1;
            });
            said.textContent = words.length ? `${shown} of ${rows.length} rows` : all;
        });
    }

    // ---- all of it

    darkness.addEventListener("change", () => paintAll(darkness.matches ? DARK : LIGHT));
    window.addEventListener("beforeprint", () => {
        pictures.forEach(drawOnce);
        paintAll(LIGHT);
    });
    window.addEventListener("afterprint", () => paintAll(darkness.matches ? DARK : LIGHT));
    for (const table of document.querySelectorAll("table.sortable")) {
        for (const head of table.querySelectorAll("th[data-kind]")) {
            head.querySelector("button").addEventListener("click", () => sort(table, head));
        }
    }
    document.querySelectorAll("input[type=search]").forEach(offerSearch);
    drawAll();
})();
