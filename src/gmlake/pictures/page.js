"use strict";
// Draws a page's pictures, and makes buttons and keys do everything that the mouse can.
(() => {
    const ZOOM = 0.6;
    const STEP = 0.2;
    const LIGHT = { ink: "#1c2128", faint: "#59616d", line: "#d5dae1", faintest: "#d5dae180" };
    const DARK = { ink: "#e4e8ee", faint: "#a3acb9", line: "#363d48", faintest: "#363d4880" };
    const darkness = window.matchMedia("(prefers-color-scheme: dark)");
    const plots = [];

    // ---- pictures

    function draw(data) {
        const box = data.previousElementSibling;
        if (box.plot) {
            return;
        }
        const colours = darkness.matches ? DARK : LIGHT;
        const plot = (box.plot = new Plot(box, JSON.parse(data.textContent), box.dataset.axes, colours));
        data.textContent = "";
        plots.push(plot);
        maps.push({ plot, group: box.closest("section").dataset.group });
        offerControls(box, plot);
        offerChoices(box, plot);
        join(box, plot);
        box.dataset.ready = "true";
        if (plots.length === 1) {
            noteTime("gmlake-first");
        }
    }

    // One after the other, so that the first is visible and usable at once; a picture scrolled into
    // view does not wait for its turn.
    async function drawAll() {
        const pictures = [...document.querySelectorAll("script[data-for]")];
        const watch = new IntersectionObserver(
            (entries) =>
                entries
                    .filter((entry) => entry.isIntersecting)
                    .forEach((entry) => draw(entry.target.nextElementSibling)),
            { rootMargin: "200px" }
        );
        pictures.forEach((data) => watch.observe(data.previousElementSibling));
        for (const data of pictures) {
            draw(data);
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

    function paintAll(colours) {
        for (const plot of plots) {
            plot.colours = colours;
            plot.draw();
        }
    }

    // ---- runs: pictures of one run share an axis, zoom together, and follow its slider

    const OTHER = "_other";
    const LEAST_STARTUP = 0.1; // of the width, to be worth folding
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
        plot.onClick = (x) => run.said && goNear(run, x);
        setAxis(run, one);
        setCursor(run);
        plot.onRange = () => follow(run, plot);
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
            plot.swap(OTHER);
            plot.x.kind = axis === "events" ? "whole" : "time";
            plot.x.label = axis === "events" ? "events" : "time";
        }
        if (own[one.axis]) {
            const all = run.plots[0].own;
            const [low, high] = own[axis] && all[axis] ? spanOf(run, all) : own[one.axis];
            Object.assign(plot.x, { low, high, start: low, end: high });
            plot.redraw();
        }
    }

    let isFollowing = false;

    function follow(run, plot) {
        if (isFollowing) {
            return;
        }
        isFollowing = true;
        for (const other of run.plots.filter((one) => one.plot !== plot)) {
            other.plot.show([plot.x.start, plot.x.end]);
        }
        isFollowing = false;
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
                one.plot.cursor = placeOf(run.said.moments[run.shown], one);
                one.plot.redraw();
            }
        }
    }

    function goNear(run, x) {
        const [one] = run.plots;
        const far = run.said.moments.map((moment) => Math.abs(placeOf(moment, one) - x));
        run.go(far.indexOf(Math.min(...far)));
    }

    function offerMoments(data) {
        if (!data.textContent) {
            return;
        }
        const group = data.dataset.moments;
        const run = runOf(group);
        run.said = JSON.parse(data.textContent);
        data.textContent = "";
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
            plot.moment = moment;
            plot.redraw();
        }
    }

    function countBlocks(group, run, moment) {
        for (const section of document.querySelectorAll(`section.blocks[data-group="${group}"]`)) {
            const rows = [...section.querySelector("tbody").rows];
            rows.forEach((row) => countRow(row, run, moment));
            const count = rows.filter((row) => !("gone" in row.dataset)).length;
            section.querySelector("output").textContent = `${count} rows of ${Plot.sizeOf(moment.live)}`;
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
            fill(row.cells[0], Plot.sizeOf(bytes), bytes);
            fill(row.cells[1], `${((100 * bytes) / moment.live).toFixed(1)} %`, bytes);
            fill(row.cells[2], count.toLocaleString("en"), count);
        }
    }

    function fill(cell, text, value) {
        cell.textContent = text;
        cell.dataset.value = value;
    }

    // ---- zoom

    function act(plot, what) {
        const actions = {
            in: () => plot.zoom(ZOOM),
            out: () => plot.zoom(1 / ZOOM),
            left: () => plot.move(-STEP, 0),
            right: () => plot.move(STEP, 0),
            up: () => plot.move(0, STEP),
            down: () => plot.move(0, -STEP),
            reset: () => plot.reset(),
        };
        actions[what]();
    }

    const KEYS = {
        "+": "in", "=": "in", "-": "out", "0": "reset", Home: "reset",
        ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down",
    };

    function offerControls(box, plot) {
        const section = box.closest("section");
        for (const button of section.querySelectorAll("button[data-act]")) {
            button.addEventListener("click", () => act(plot, button.dataset.act));
        }
        box.addEventListener("keydown", (event) => {
            const what = KEYS[event.key];
            const isVertical = what === "up" || what === "down";
            if (!what || event.ctrlKey || event.metaKey || event.altKey || (isVertical && plot.axes === "x")) {
                return;
            }
            act(plot, what);
            event.preventDefault();
        });
        for (const button of section.querySelectorAll("button[data-name]")) {
            button.addEventListener("click", () => toggle(button, plot));
        }
    }

    function toggle(button, plot) {
        const isShown = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(isShown));
        plot.part(button.dataset.name).isShown = isShown;
        plot.redraw();
    }

    // ---- what is chosen in a picture: one view of many, or the rows of a table

    function offerChoices(box, plot) {
        const select = box.closest("section").querySelector("select");
        plot.onChoice = tellChoice;
        select?.addEventListener("change", () =>
            plot.select(plot.part("views"), select.value === "" ? undefined : Number(select.value)));
    }

    function tellChoice(part, value) {
        if (part.name === "views") {
            part.plot.box.closest("section").querySelector("select").value = value ?? "";
        }
        if (part.name === "searches") {
            const input = document.querySelector("table.searched")?.closest("section").querySelector("input[type=search]");
            if (input) {
                input.value = value === undefined ? "" : part.source.data.name[value];
                input.dispatchEvent(new Event("input"));
            }
        }
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

    // The page calls it behind its first picture, before it is read to its end.
    window.drawFirst = () => {
        document.querySelectorAll("script[data-moments]").forEach(offerMoments);
        draw(document.querySelector("script[data-for]"));
    };
    darkness.addEventListener("change", () => paintAll(darkness.matches ? DARK : LIGHT));
    window.addEventListener("beforeprint", () => {
        document.querySelectorAll("script[data-for]").forEach(draw);
        paintAll(LIGHT);
    });
    window.addEventListener("afterprint", () => paintAll(darkness.matches ? DARK : LIGHT));
    document.addEventListener("DOMContentLoaded", () => {
        document.querySelectorAll("script[data-moments]").forEach(offerMoments);
        for (const table of document.querySelectorAll("table.sortable")) {
            for (const head of table.querySelectorAll("th[data-kind]")) {
                head.querySelector("button").addEventListener("click", () => sort(table, head));
            }
        }
        document.querySelectorAll("input[type=search]").forEach(offerSearch);
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
    });
})();
