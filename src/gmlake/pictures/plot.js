"use strict";
// Draws one picture on a canvas: axes, and parts that are zoomed, hovered, chosen and hidden.
const Plot = (() => {
    const RIGHT = 16;
    const TOP = 6;
    const TICK = 5;
    const LINE = 14;
    const FONT = "12px system-ui, sans-serif";
    const NEAR = 4; // pixels to a line that the mouse means
    const LEAST_DRAG = 4;
    const LEAST_SHARE = 1e-7; // of an axis, that can still be zoomed into
    const WHEEL = 0.8;
    const OUTLINED = 3; // pixels of a rectangle that shows its edge
    const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

    // ---- columns

    function unpacked(column) {
        if (Array.isArray(column)) {
            return column;
        }
        if (column.texts) {
            return column.at.map((place) => column.texts[place]);
        }
        const [[kind, text]] = Object.entries(column);
        const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
        return kind === "f4" ? new Float32Array(bytes.buffer) : new Float64Array(bytes.buffer);
    }

    function sourceOf(columns) {
        const data = {};
        for (const [name, column] of Object.entries(columns)) {
            data[name] = unpacked(column);
        }
        return { data, selected: [] };
    }

    // An area lies on all areas before it.
    function stack(parts) {
        let below = null;
        for (const part of parts.filter((one) => one.kind === "area")) {
            const value = part.source.data[part.value];
            part.low = below ?? new Float64Array(value.length);
            below = part.high = part.low.map((low, index) => low + value[index]);
        }
    }

    // ---- texts

    function sizeOf(bytes, isShort = false) {
        let value = Math.abs(bytes);
        let unit = 0;
        while (unit + 1 < UNITS.length && value >= (unit ? 1023.5 : 1024)) {
            value /= 1024;
            unit += 1;
        }
        const digits = unit === 0 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
        const text = isShort ? Number(value.toPrecision(4)) : value.toFixed(digits);
        return `${bytes < 0 ? "-" : ""}${text} ${UNITS[unit]}`;
    }

    function countOf(value) {
        return Number(value.toPrecision(9)).toLocaleString("en");
    }

    function timeOf(value, span) {
        const [factor, unit] = span < 2e-6 ? [1e9, "ns"] : span < 2e-3 ? [1e6, "\u00b5s"]
            : span < 2 ? [1e3, "ms"] : span < 300 ? [1, "s"] : [1 / 60, "min"];
        return `${countOf(value * factor)} ${unit}`;
    }

    const SAID = { bytes: sizeOf, count: (value) => countOf(Math.round(value)), "": String };

    // ---- axes

    function axisOf({ range: [low, high], ...rest }) {
        return { ...rest, low, high, start: low, end: high };
    }

    function stepOf(axis, most) {
        const least = (axis.end - axis.start) / Math.max(most, 1);
        if (axis.kind === "bytes") {
            return Math.max(2 ** Math.ceil(Math.log2(least)), 1);
        }
        const power = 10 ** Math.floor(Math.log10(least));
        const step = power * [1, 2, 5, 10].find((factor) => factor * power >= least * 0.999);
        return axis.kind === "whole" ? Math.max(step, 1) : step;
    }

    function ticksOf(axis, most) {
        if (axis.kind === "named") {
            return axis.names.filter(([at]) => at >= axis.start && at <= axis.end);
        }
        const step = stepOf(axis, most);
        const ticks = [];
        const span = axis.end - axis.start;
        for (let number = Math.ceil(axis.start / step); number * step <= axis.end; number++) {
            const at = number * step;
            const text = axis.kind === "bytes" ? sizeOf(at, true)
                : axis.kind === "time" ? timeOf(at, span) : countOf(at);
            ticks.push([at, text]);
        }
        return ticks;
    }

    function show(axis, start, end) {
        const width = Math.min(end - start, axis.high - axis.low);
        if (!(width >= (axis.high - axis.low) * LEAST_SHARE)) {
            return;
        }
        axis.start = Math.min(Math.max(start, axis.low), axis.high - width);
        axis.end = axis.start + width;
    }

    // ---- what is drawn

    function isThere(part, index, moment) {
        const { first, end } = part.source.data;
        return !first || (first[index] <= moment && moment < end[index]);
    }

    function valueOf(style, part, index) {
        return typeof style === "string" && style[0] === "@" ? part.source.data[style.slice(1)][index] : style;
    }

    function alphaOf(part, index) {
        const { selected } = part.source;
        if (selected.length && part.others !== undefined) {
            return selected.includes(index) ? (part.chosen ?? valueOf(part.alpha, part, index)) : part.others;
        }
        return valueOf(part.alpha ?? 1, part, index);
    }

    function columnsOf(part, ...names) {
        return names.map((name) => part.source.data[part[name] ?? name]);
    }

    const hatches = new Map();

    function hatchOf(pen, colour) {
        if (!hatches.has(colour)) {
            const tile = document.createElement("canvas");
            tile.width = tile.height = 8;
            const lines = tile.getContext("2d");
            lines.strokeStyle = colour;
            lines.lineWidth = 1.5;
            lines.beginPath();
            for (const at of [-8, 0, 8]) {
                lines.moveTo(at, 8);
                lines.lineTo(at + 8, 0);
            }
            lines.stroke();
            hatches.set(colour, pen.createPattern(tile, "repeat"));
        }
        return hatches.get(colour);
    }

    const DRAW = {
        area(plot, pen, part) {
            const [x] = columnsOf(part, "x");
            fillSteps(plot, pen, part, x, part.low, part.high);
        },

        band(plot, pen, part) {
            const [x, low, top] = columnsOf(part, "x", "low", "top");
            pen.beginPath();
            for (let index = 0; index < x.length; index++) {
                pen.lineTo(plot.pixelX(x[index]), plot.pixelY(top[index]));
            }
            for (let index = x.length - 1; index >= 0; index--) {
                pen.lineTo(plot.pixelX(x[index]), plot.pixelY(low[index]));
            }
            pen.fill();
        },

        step(plot, pen, part) {
            const [x, y] = columnsOf(part, "x", "y");
            pen.beginPath();
            stepLine(plot, pen, x, y);
            pen.stroke();
        },

        line(plot, pen, part) {
            const [x, y] = columnsOf(part, "x", "y");
            pen.beginPath();
            for (let index = 0; index < x.length; index++) {
                pen.lineTo(plot.pixelX(x[index]), plot.pixelY(y[index]));
            }
            pen.stroke();
        },

        segment(plot, pen, part) {
            const [x, low, top] = columnsOf(part, "x", "low", "top");
            const far = part.source.data[part.x1] ?? x;
            eachStyle(part, x.length, plot.moment, (indices, colour, alpha) => {
                pen.strokeStyle = colour;
                pen.globalAlpha = alpha;
                pen.beginPath();
                for (const index of indices) {
                    pen.moveTo(plot.pixelX(x[index]), plot.pixelY(low[index]));
                    pen.lineTo(plot.pixelX(far[index]), plot.pixelY(top[index]));
                }
                pen.stroke();
            });
        },

        rectangle(plot, pen, part) {
            const [left, right, bottom, top] = columnsOf(part, "left", "right", "bottom", "top");
            eachStyle(part, left.length, plot.moment, (indices, colour, alpha) => {
                const [inner, edges] = [new Path2D(), new Path2D()];
                for (const index of indices) {
                    const x = plot.pixelX(left[index]);
                    const y = plot.pixelY(top[index]);
                    const width = plot.pixelX(right[index]) - x;
                    const height = plot.pixelY(bottom[index]) - y;
                    if (x > plot.width || y > plot.height || x + width < 0 || y + height < 0) {
                        continue;
                    }
                    inner.rect(x, y, Math.max(width, 0.7), Math.max(height, 0.7));
                    if (width > OUTLINED && height > OUTLINED) {
                        edges.rect(x, y, width, height);
                    }
                }
                pen.fillStyle = pen.strokeStyle = colour;
                pen.globalAlpha = alpha;
                if (!part.isOutline) {
                    pen.fill(inner);
                    pen.globalAlpha = alpha && Math.max(alpha, 0.4);
                }
                pen.stroke(edges);
                if (part.isHatched) {
                    pen.fillStyle = hatchOf(pen, colour);
                    pen.fill(inner);
                }
            });
        },

        // Only the texts for which there is room: from left to right, each height a line of its own.
        text(plot, pen, part) {
            const [x, y, name] = columnsOf(part, "x", "y", "text");
            const taken = new Map();
            part.shown = [];
            pen.fillStyle = plot.colours.ink;
            pen.font = "11px system-ui, sans-serif";
            for (let index = 0; index < x.length; index++) {
                const at = plot.pixelX(x[index]) + 3;
                if (at >= 0 && at + 6 <= plot.width && at >= (taken.get(y[index]) ?? -1)) {
                    taken.set(y[index], at + pen.measureText(name[index]).width + 12);
                    pen.fillText(name[index], at, plot.pixelY(y[index]));
                    part.shown.push(name[index]);
                }
            }
        },

        level(plot, pen, part) {
            const [y] = columnsOf(part, "y");
            pen.beginPath();
            pen.moveTo(0, plot.pixelY(y[0]));
            pen.lineTo(plot.width, plot.pixelY(y[0]));
            pen.stroke();
        },
    };

    function stepLine(plot, pen, x, y, isBack = false) {
        const last = plot.pixelX(x[x.length - 1]) + 1;
        for (let number = 0; number < x.length; number++) {
            const index = isBack ? x.length - 1 - number : number;
            const [from, to] = [plot.pixelX(x[index]), index + 1 < x.length ? plot.pixelX(x[index + 1]) : last];
            const at = plot.pixelY(y[index]);
            pen.lineTo(isBack ? to : from, at);
            pen.lineTo(isBack ? from : to, at);
        }
    }

    function fillSteps(plot, pen, part, x, low, high) {
        pen.beginPath();
        stepLine(plot, pen, x, high);
        stepLine(plot, pen, x, low, true);
        pen.fill();
    }

    // Calls draw(indices, colour, alpha) for those of one style together.
    function eachStyle(part, count, moment, draw) {
        const styles = new Map();
        for (let index = 0; index < count; index++) {
            if (isThere(part, index, moment)) {
                const [colour, alpha] = [valueOf(part.colour, part, index), alphaOf(part, index)];
                const key = `${colour} ${alpha}`;
                const found = styles.get(key);
                if (found) {
                    found.indices.push(index);
                } else {
                    styles.set(key, { colour, alpha, indices: [index] });
                }
            }
        }
        for (const { indices, colour, alpha } of styles.values()) {
            draw(indices, colour, alpha);
        }
    }

    function hit(plot, part, x, y) {
        if (part.kind === "rectangle") {
            const [left, right, bottom, top] = columnsOf(part, "left", "right", "bottom", "top");
            for (let index = left.length - 1; index >= 0; index--) {
                const far = Math.max(plot.pixelX(right[index]), plot.pixelX(left[index]) + 1);
                if (plot.pixelX(left[index]) <= x && x <= far && plot.pixelY(top[index]) <= y
                    && y <= plot.pixelY(bottom[index]) && isThere(part, index, plot.moment)) {
                    return index;
                }
            }
        } else if (part.kind === "segment") {
            const [at, low, top] = columnsOf(part, "x", "low", "top");
            return at.findIndex((value, index) => Math.abs(plot.pixelX(value) - x) <= NEAR
                && plot.pixelY(top[index]) <= y && y <= plot.pixelY(low[index]));
        } else { // a line or steps: wherever the mouse is, the value there
            const [at] = columnsOf(part, "x");
            let [low, high] = [0, at.length - 1];
            while (low < high) {
                const middle = Math.ceil((low + high) / 2);
                [low, high] = plot.pixelX(at[middle]) <= x ? [middle, high] : [low, middle - 1];
            }
            return high < 0 ? -1 : low;
        }
        return -1;
    }

    // ---- a picture

    return class Plot {
        static sizeOf = sizeOf;

        // box: the element to draw in. given: Plot.to_json() of gmlake.pictures.drawing.
        constructor(box, given, axes, colours) {
            this.box = box;
            this.axes = axes;
            this.colours = colours;
            this.x = axisOf(given.x);
            this.y = axisOf(given.y);
            this.sources = given.sources.map(sourceOf);
            this.parts = given.parts.map((part) => ({ ...part, plot: this, source: this.sources[part.source], isShown: true }));
            stack(this.parts);
            this.moment = given.moment;
            this.cursor = null;
            this.onRange = () => {};
            this.onClick = () => {};
            this.onChoice = () => {};
            this.canvas = document.createElement("canvas");
            [this.tip, this.mark] = ["tip", "mark"].map((name) => {
                const made = document.createElement("div");
                made.className = name;
                made.hidden = true;
                return made;
            });
            box.append(this.canvas, this.mark, this.tip);
            this.draw();
            new ResizeObserver(() => this.box.clientWidth !== this.drawnWidth && this.redraw()).observe(box);
            this.listen();
        }

        part(name) {
            return this.parts.find((one) => one.name === name);
        }

        pixelX(value) {
            return ((value - this.x.start) / (this.x.end - this.x.start)) * this.width;
        }

        pixelY(value) {
            return (1 - (value - this.y.start) / (this.y.end - this.y.start)) * this.height;
        }

        // Draws before the next frame, however often it is called.
        redraw() {
            this.waits ??= requestAnimationFrame(() => this.draw());
        }

        draw() {
            this.waits = null;
            const { canvas, box } = this;
            const pen = canvas.getContext("2d");
            const scale = window.devicePixelRatio || 1;
            this.drawnWidth = box.clientWidth;
            const [wide, high] = [box.clientWidth, box.clientHeight];
            canvas.width = Math.round(wide * scale);
            canvas.height = Math.round(high * scale);
            canvas.style.width = `${wide}px`;
            canvas.style.height = `${high}px`;
            pen.scale(scale, scale);
            pen.font = FONT;
            pen.textBaseline = "middle";
            this.height = high - TOP - TICK - LINE - 4 - (this.x.label ? LINE + 4 : 0);
            const rows = ticksOf(this.y, this.height / 45);
            const widest = Math.max(0, ...rows.map(([, text]) => pen.measureText(text).width));
            this.left = Math.ceil(widest) + TICK + 6 + (this.y.label ? LINE + 4 : 0);
            this.width = wide - this.left - RIGHT;
            this.drawAxes(pen, rows);
            pen.save();
            pen.translate(this.left, TOP);
            pen.beginPath();
            pen.rect(0, 0, this.width, this.height);
            pen.clip();
            this.parts.filter((part) => part.isShown).forEach((part) => this.drawPart(pen, part));
            if (this.cursor !== null) {
                pen.globalAlpha = 0.7;
                pen.fillStyle = this.colours.ink;
                pen.fillRect(this.pixelX(this.cursor) - 1, 0, 2, this.height);
            }
            pen.restore();
        }

        drawPart(pen, part) {
            pen.save();
            pen.fillStyle = pen.strokeStyle = part.colour ?? "";
            pen.globalAlpha = typeof part.alpha === "number" ? part.alpha : 1;
            pen.lineWidth = part.width ?? 1;
            pen.setLineDash(part.dash ?? []);
            DRAW[part.kind](this, pen, part);
            pen.restore();
        }

        drawAxes(pen, rows) {
            const { left, width, height, colours } = this;
            const line = (x, y, wide, high, colour = colours.line) => {
                pen.fillStyle = colour;
                pen.fillRect(Math.round(x), Math.round(y), wide, high);
            };
            pen.textAlign = "right";
            for (const [at, text] of rows) {
                const y = TOP + this.pixelY(at);
                if (this.y.kind !== "named") {
                    line(left, y, width, 1, colours.faintest);
                }
                line(left - TICK, y, TICK, 1);
                pen.fillStyle = colours.ink;
                pen.fillText(text, left - TICK - 3, y);
            }
            pen.textAlign = "center";
            const most = width / (this.x.kind === "bytes" ? 70 : 90);
            for (const [at, text] of ticksOf(this.x, most)) {
                const x = left + this.pixelX(at);
                line(x, TOP, 1, height, colours.faintest);
                line(x, TOP + height, 1, TICK);
                pen.fillStyle = colours.ink;
                pen.fillText(text, x, TOP + height + TICK + LINE / 2 + 2);
            }
            line(left, TOP, 1, height);
            line(left, TOP + height, width, 1);
            pen.fillStyle = colours.faint;
            pen.fillText(this.x.label, left + width / 2, TOP + height + TICK + LINE * 1.5 + 6);
            pen.save();
            pen.translate(LINE / 2 + 2, TOP + height / 2);
            pen.rotate(-Math.PI / 2);
            pen.fillText(this.y.label, 0, 0);
            pen.restore();
        }

        // ---- zoom

        // Shows these ends of the axes; what is undefined stays.
        show(x, y) {
            if (x) {
                show(this.x, ...x);
            }
            if (y) {
                show(this.y, ...y);
            }
            this.redraw();
            this.onRange();
        }

        // factor: of what is shown. share: of the picture from the left, and from below, that stays.
        zoom(factor, shareX = 0.5, shareY = 0.5) {
            const around = ({ start, end }, share) => {
                const [fixed, width] = [start + (end - start) * share, (end - start) * factor];
                return [fixed - width * share, fixed + width * (1 - share)];
            };
            this.show(around(this.x, shareX), this.axes === "xy" ? around(this.y, shareY) : undefined);
        }

        move(shareX, shareY) {
            const by = ({ start, end }, share) => [start + (end - start) * share, end + (end - start) * share];
            this.show(by(this.x, shareX), this.axes === "xy" ? by(this.y, shareY) : undefined);
        }

        reset() {
            this.show([this.x.low, this.x.high], [this.y.low, this.y.high]);
        }

        // ---- the mouse

        listen() {
            let from = null;
            const place = (event) => {
                const area = this.canvas.getBoundingClientRect();
                const within = (value, most) => Math.min(Math.max(value, 0), most);
                return [
                    within(event.clientX - area.left - this.left, this.width),
                    within(event.clientY - area.top - TOP, this.height),
                ];
            };
            this.canvas.addEventListener("wheel", (event) => {
                if (event.ctrlKey) {
                    const [x, y] = place(event);
                    this.zoom(event.deltaY < 0 ? WHEEL : 1 / WHEEL, x / this.width, 1 - y / this.height);
                    event.preventDefault();
                }
            }, { passive: false });
            this.canvas.addEventListener("pointerdown", (event) => {
                if (event.button === 0) {
                    from = place(event);
                    this.canvas.setPointerCapture(event.pointerId);
                }
            });
            this.canvas.addEventListener("pointermove", (event) => {
                const at = place(event);
                if (from) {
                    this.tip.hidden = true;
                    this.outline(...from, ...at, this.axes);
                } else {
                    this.tell(...at);
                }
            });
            this.canvas.addEventListener("pointerup", (event) => {
                if (from) {
                    const [begin, end] = [from, place(event)];
                    from = null;
                    this.mark.hidden = true;
                    this.dropped(begin, end);
                }
            });
            this.canvas.addEventListener("pointerleave", () => {
                this.tip.hidden = this.mark.hidden = true;
            });
        }

        dropped([x, y], [toX, toY]) {
            const isLong = Math.abs(toX - x) >= LEAST_DRAG || (this.axes === "xy" && Math.abs(toY - y) >= LEAST_DRAG);
            if (!isLong) {
                this.onClick(this.x.start + (x / this.width) * (this.x.end - this.x.start));
                this.choose(x, y);
                return;
            }
            const cut = ({ start, end }, ...shares) => {
                const [low, high] = shares.sort((one, other) => one - other);
                return [start + (end - start) * low, start + (end - start) * high];
            };
            this.show(
                cut(this.x, x / this.width, toX / this.width),
                this.axes === "xy" ? cut(this.y, 1 - y / this.height, 1 - toY / this.height) : undefined
            );
        }

        outline(x, y, toX, toY, axes = "xy") {
            const [top, bottom] = axes === "xy" ? [Math.min(y, toY), Math.max(y, toY)] : [0, this.height];
            const style = { left: this.left + Math.min(x, toX), top: TOP + top,
                width: Math.abs(toX - x), height: bottom - top };
            for (const [name, value] of Object.entries(style)) {
                this.mark.style[name] = `${value}px`;
            }
            this.mark.hidden = false;
        }

        // Selects what was clicked on, with all that has the same value in the part's column `tap`.
        choose(x, y) {
            for (const part of this.parts.filter((one) => one.tap)) {
                const index = hit(this, part, x, y);
                const values = part.source.data[part.tap];
                this.select(part, index < 0 ? undefined : values[index]);
            }
        }

        select(part, value) {
            const values = part.source.data[part.tap];
            part.source.selected = Array.from(values.keys()).filter((index) => values[index] === value);
            this.redraw();
            this.onChoice(part, value);
        }

        tell(x, y) {
            const hovered = this.parts.filter((part) => part.hover && part.isShown).reverse();
            const said = [];
            this.mark.hidden = true;
            let hasItem = false;
            for (const part of hovered) {
                const isItem = part.kind === "rectangle";
                const index = isItem && hasItem ? -1 : hit(this, part, x, y);
                if (index < 0) {
                    continue;
                }
                const { data } = part.source;
                for (const [what, column, format] of part.hover) {
                    const text = SAID[format](data[column][index]);
                    if (text) {
                        said.push(what ? `${what}: ${text}` : text);
                    }
                }
                if (isItem) {
                    hasItem = true;
                    const [left, right, bottom, top] = columnsOf(part, "left", "right", "bottom", "top");
                    this.outline(this.pixelX(left[index]), this.pixelY(top[index]),
                        this.pixelX(right[index]), this.pixelY(bottom[index]));
                }
            }
            this.tip.hidden = !said.length;
            this.tip.textContent = said.join("\n");
            const isRight = x > this.width / 2;
            this.tip.style.left = isRight ? "" : `${this.left + x + 14}px`;
            this.tip.style.right = isRight ? `${RIGHT + this.width - x + 14}px` : "";
            this.tip.style.top = `${TOP + Math.min(y, this.height - 20)}px`;
        }

        // ---- what the page changes

        // Takes each column's other values, which are named alike: times for events, and back.
        swap(other) {
            for (const { data } of this.sources) {
                for (const name of Object.keys(data).filter((each) => each + other in data)) {
                    [data[name], data[name + other]] = [data[name + other], data[name]];
                }
            }
        }
    };
})();
