"use strict";
// Draws a page's pictures, and makes buttons and keys do everything that the mouse can.
(() => {
    const ZOOM = 0.6;
    const STEP = 0.2;
    const LIGHT = { ink: "#1c2128", faint: "#59616d", line: "#d5dae1" };
    const DARK = { ink: "#e4e8ee", faint: "#a3acb9", line: "#363d48" };
    const darkness = window.matchMedia("(prefers-color-scheme: dark)");
    const plots = [];
    const pictures = [...document.querySelectorAll("script[data-for]")];

    // ---- pictures

    async function draw(data) {
        const item = JSON.parse(data.textContent);
        data.textContent = "";
        const views = await Bokeh.embed.embed_item(item);
        const plot = [...views][0].model;
        const box = document.getElementById(item.target_id);
        plots.push(plot);
        paint(plot, darkness.matches ? DARK : LIGHT);
        maps.push({ plot, group: box.closest("section").dataset.group });
        offerControls(box, plot);
        offerChoices(box, plot);
        offerDetails(plot);
        join(box, plot);
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

    // One after the other, so that the first is visible and usable at once; a picture scrolled into
    // view does not wait for its turn.
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

    // Notes when the pictures drawn so far become visible, for measurements.
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
        const [names, cursor] = [partOf(plot, "names"), partOf(plot, "moment")];
        if (names) {
            names.glyph.text_color = colours.ink;
        }
        if (cursor) {
            cursor.line_color = colours.ink;
        }
    }

    function paintAll(colours) {
        for (const plot of plots) {
            paint(plot, colours);
        }
    }

    function partOf(plot, name) {
        return [...plot.renderers, ...plot.center].find((part) => part.name === name);
    }

    function columnsOf(source) {
        const { data } = source;
        return data instanceof Map ? Object.fromEntries(data) : { ...data };
    }

    // ---- runs: pictures of one run share an axis, zoom together, and follow its slider

    const OTHER = "_other";
    const ROOM_PIXELS = 6.2; // of a letter of a mark's name
    const LEAST_STARTUP = 0.1; // of the width, to be worth folding
    const COUNTED = 'return Number(tick.toPrecision(9)).toLocaleString("en")';
    const TIMED = `
        const span = Math.abs(ticks[ticks.length - 1] - ticks[0]) || Math.abs(tick);
        const [factor, unit] = span < 2e-6 ? [1e9, "ns"] : span < 2e-3 ? [1e6, "\u00b5s"]
            : span < 2 ? [1e3, "ms"] : span < 300 ? [1, "s"] : [1 / 60, "min"];
        return Number((tick * factor).toPrecision(9)).toLocaleString("en") + " " + unit;`;
    const runs = new Map();
    let axis = "events";
    let isStartupShown = false;

    function runOf(group) {
        if (!runs.has(group)) {
            runs.set(group, { plots: [], range: null, said: null, shown: 0, first: null });
        }
        return runs.get(group);
    }

    // The ends of the axis: it starts after the start-up, unless that is selected or matters.
    function spanOf(run, own) {
        const [low, high] = own[axis]; // of the first picture: all of a run begin and end alike
        const step = run.first?.[axis === "events" ? 0 : 1] ?? low;
        const shown = run.said?.moments[run.said.shown];
        const matters = shown && (axis === "events" ? shown.at : shown.seconds) < step;
        const isWorth = step - low > LEAST_STARTUP * (high - low) && step < high && !matters;
        run.canFold ||= isWorth;
        return isWorth && !isStartupShown ? [step, high] : [low, high];
    }

    function join(box, plot) {
        if (!box.dataset.run) {
            return;
        }
        const own = JSON.parse(box.dataset.run);
        const run = runOf(box.closest("section").dataset.group);
        const one = { plot, own, axis: "events" };
        run.first ??= own.first_step;
        run.plots.push(one);
        if (run.said) {
            plot.on_event("tap", ({ x }) => goNear(run, x));
        }
        setAxis(run, one);
        setCursor(run);
        plot.x_range.properties.start.change.connect(() => follow(run, plot));
        plot.x_range.properties.end.change.connect(() => follow(run, plot));
        offerAxes();
    }

    // Offers times if any are known, and the start-up if it is folded.
    function offerAxes() {
        const all = [...runs.values()];
        const hasTimes = all.some((run) => run.plots.some((one) => one.own.times));
        const canFold = all.some((run) => run.canFold);
        const startup = document.querySelector("button[data-startup]");
        startup.setAttribute("aria-pressed", String(isStartupShown));
        startup.hidden = !canFold;
        document.querySelector(".axes [role=group]").hidden = !hasTimes;
        document.querySelector(".axes").hidden = !hasTimes && !canFold;
    }

    function setAxis(run, one) {
        const { plot, own } = one;
        if (own[axis] && one.axis !== axis) {
            one.axis = axis;
            const sources = new Set(plot.renderers.map((part) => part.data_source));
            for (const source of sources) {
                source.data = swapped(columnsOf(source));
            }
            plot.below[0].formatter.code = axis === "events" ? COUNTED : TIMED;
            plot.below[0].ticker.min_interval = axis === "events" ? 1 : 0;
            plot.below[0].axis_label = axis === "events" ? "events" : "time";
        }
        if (own[one.axis]) {
            const all = run.plots[0].own;
            const [low, high] = own[axis] && all[axis] ? spanOf(run, all) : own[one.axis];
            plot.x_range.setv({
                bounds: [low, high], start: low, end: high, min_interval: (high - low) * 1e-7,
            });
        }
        nameMarks(plot);
    }

    function swapped(columns) {
        for (const name of Object.keys(columns).filter((each) => each + OTHER in columns)) {
            [columns[name], columns[name + OTHER]] = [columns[name + OTHER], columns[name]];
        }
        return columns;
    }

    let isFollowing = false;

    function follow(run, plot) {
        nameMarks(plot);
        if (isFollowing) {
            return;
        }
        isFollowing = true;
        const { start, end } = plot.x_range;
        for (const other of run.plots) {
            if (other.plot !== plot) {
                other.plot.x_range.setv({ start, end });
            }
        }
        isFollowing = false;
    }

    // Labels the marks for which there is room: from left to right, each kind on its own line.
    function nameMarks(plot) {
        const names = partOf(plot, "names");
        if (!names) {
            return;
        }
        const columns = columnsOf(names.data_source);
        const { start, end } = plot.x_range;
        const letters = (plot.inner_width || 900) / ROOM_PIXELS;
        const taken = new Map();
        const shown = Array.from(columns.x, (x, index) => {
            const at = ((x - start) / (end - start)) * letters;
            const line = columns.y[index];
            const name = columns.name[index];
            if (at < 0 || at + 1 > letters || at < (taken.get(line) ?? -1)) {
                return "";
            }
            taken.set(line, at + name.length + 2);
            return name;
        });
        if (shown.some((name, index) => name !== columns.shown[index])) {
            names.data_source.data = { ...columns, shown };
        }
    }

    function setAxisOfAll() {
        for (const button of document.querySelectorAll("button[data-axis]")) {
            button.setAttribute("aria-pressed", String(button.dataset.axis === axis));
        }
        for (const run of runs.values()) {
            run.canFold = false;
            run.plots.forEach((one) => setAxis(run, one));
            setCursor(run);
        }
        offerAxes();
    }

    // ---- moments

    function placeOf(moment, one) {
        return one.axis === "events" ? Math.max(moment.at, 0) : moment.seconds;
    }

    function setCursor(run) {
        if (run.said) {
            for (const one of run.plots) {
                partOf(one.plot, "moment").location = placeOf(run.said.moments[run.shown], one);
            }
        }
    }

    function goNear(run, x) {
        const [one] = run.plots;
        const far = run.said.moments.map((moment) => Math.abs(placeOf(moment, one) - x));
        run.go(far.indexOf(Math.min(...far)));
    }

    function sizeOf(bytes) {
        let value = bytes;
        let unit = "B";
        for (const next of ["KiB", "MiB", "GiB", "TiB", "PiB"]) {
            if (value < (unit === "B" ? 1024 : 1023.5)) {
                break;
            }
            value /= 1024;
            unit = next;
        }
        const digits = unit === "B" ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
        return `${value.toFixed(digits)} ${unit}`;
    }

    function offerMoments(data) {
        const group = data.dataset.moments;
        const run = runOf(group);
        run.said = JSON.parse(data.textContent);
        run.shown = run.said.shown;
        const section = data.closest("section");
        const mover = document.querySelector(`.mover[data-group="${group}"]`);
        run.go = (number) => {
            const { moments } = run.said;
            run.shown = Math.min(Math.max(number, 0), moments.length - 1);
            const moment = moments[run.shown];
            const slide = mover.querySelector("input");
            slide.value = run.shown;
            slide.setAttribute("aria-valuetext", moment.place);
            mover.querySelector("output").textContent = moment.place;
            section.querySelector(".told").replaceChildren(
                ...moment.says.map((text) => element("p", text))
            );
            tellStranded(section, moment);
            for (const other of document.querySelectorAll(`section[data-group="${group}"][data-topic]`)) {
                other.querySelector("h2").textContent = `${other.dataset.topic} ${moment.name}`;
            }
            showPieces(group, run.shown);
            countBlocks(group, run, moment);
            setCursor(run);
        };
        if (!mover) {
            return;
        }
        mover.querySelector("input").addEventListener("input", (event) => run.go(Number(event.target.value)));
        for (const button of mover.querySelectorAll("button")) {
            const by = Number(button.dataset.go);
            button.addEventListener("click", () => run.go(by ? run.shown + by : run.said.shown));
        }
    }

    function element(tag, text, style = "") {
        const made = document.createElement(tag);
        made.textContent = text;
        made.className = style;
        return made;
    }

    function tellStranded(section, moment) {
        const body = section.querySelector("tbody");
        body?.replaceChildren(
            ...moment.stranded.map((cells) => {
                const row = document.createElement("tr");
                const isText = (index) => index === 2 || index === 5;
                row.append(...cells.map((text, index) => element("td", text, isText(index) ? "" : "number")));
                return row;
            })
        );
    }

    const maps = [];

    function showPieces(group, moment) {
        for (const { plot } of maps.filter((one) => one.group === group)) {
            for (const part of ["held", "base"].map((name) => partOf(plot, name)).filter(Boolean)) {
                const { first, end } = columnsOf(part.data_source);
                const indices = [];
                for (let index = 0; index < first.length; index++) {
                    if (first[index] <= moment && moment < end[index]) {
                        indices.push(index);
                    }
                }
                part.view.filter.indices = indices;
            }
        }
    }

    function countBlocks(group, run, moment) {
        for (const section of document.querySelectorAll(`section.blocks[data-group="${group}"]`)) {
            const rows = [...section.querySelector("tbody").rows];
            rows.forEach((row) => countRow(row, run, moment));
            const count = rows.filter((row) => !("gone" in row.dataset)).length;
            section.querySelector("output").textContent = `${count} rows of ${sizeOf(moment.live)}`;
        }
    }

    function countRow(row, run, moment) {
        row.dataset.before ??= row.cells[2].dataset.value;
        let count = run.shown === run.said.shown ? Number(row.dataset.before) : 0;
        for (const pair of row.dataset.counts?.split(" ") ?? []) {
            const [from, there] = pair.split(":").map(Number);
            if (from > run.shown) {
                break;
            }
            count = there;
        }
        if (count) {
            delete row.dataset.gone;
        } else {
            row.dataset.gone = "true";
        }
        if (count && row.dataset.size) {
            const bytes = count * Number(row.dataset.size);
            fill(row.cells[0], sizeOf(bytes), bytes);
            fill(row.cells[1], `${((100 * bytes) / moment.live).toFixed(1)} %`, bytes);
            fill(row.cells[2], count.toLocaleString("en"), count);
        }
    }

    function fill(cell, text, value) {
        cell.textContent = text;
        cell.dataset.value = value;
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

    // ---- rows of a table for the selection in a picture

    function offerDetails(plot) {
        const bars = plot.renderers.find((part) => part.name === "searches");
        const input = document.querySelector("table.searched")?.closest("section").querySelector("input[type=search]");
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
    document.querySelectorAll("script[data-moments]").forEach(offerMoments);
    for (const button of document.querySelectorAll("button[data-axis]")) {
        button.addEventListener("click", () => {
            axis = button.dataset.axis;
            setAxisOfAll();
        });
    }
    // The frame of a notebook has no address of its own, so its links would lead to the notebook.
    for (const link of document.querySelectorAll("nav a")) {
        link.addEventListener("click", (event) => {
            event.preventDefault();
            document.querySelector(link.hash).scrollIntoView();
        });
    }
    document.querySelector("button[data-startup]")?.addEventListener("click", () => {
        isStartupShown = !isStartupShown;
        setAxisOfAll();
    });
    document.addEventListener("keydown", (event) => {
        const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        const [run] = [...runs.values()].filter((one) => one.go);
        if (by && run && event.target === document.body && !event.ctrlKey && !event.altKey && !event.metaKey) {
            run.go(run.shown + by);
        }
    });
    drawAll();
})();
