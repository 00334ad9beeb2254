#include "diagnosis/frequency.h"

/* Newton's method from above. The C library's root would be this library's only need of libm. */
static double square_root(double value) {
    double root = value > 1 ? value : 1, next = (root + value / root) / 2;
    while (next < root) {
        root = next;
        next = (root + value / root) / 2;
    }
    return value > 0 ? root : 0;
}

/* West's incremental algorithm: equal values give exactly 0. */
void gml_spread_add(gml_spread *spread, double value, double count) {
    double distance = value - spread->mean;
    spread->count += count;
    spread->mean += distance * (count / spread->count);
    spread->squares += count * distance * (value - spread->mean);
}

double gml_spread_percent(const gml_spread *spread) {
    if (spread->count == 0 || spread->mean == 0) {
        return 0;
    }
    return 100.0 * square_root(spread->squares / spread->count) / spread->mean;
}

static void add_band(gml_spread *spread, const gml_sheet *sheet, const gml_band *band) {
    double rows = (double)(band->row_end - band->row), frequency = 0;
    uint64_t from = 0;
    for (size_t i = 0; i < band->edge_count; i++) {
        const gml_keyed *edge = &band->edges[i];
        uint64_t column = gml_edge_column(edge);
        if (frequency > 0 && column > from) {
            gml_spread_add(spread, frequency, rows * (double)(column - from));
        }
        from = column;
        double weight = sheet->rectangles[edge->index].weight;
        frequency += gml_edge_opens(edge) ? weight : -weight;
    }
}

gml_spread gml_frequency_of(gml_sheet *sheet) {
    gml_spread spread = {0};
    gml_band band;
    while (gml_sheet_next(sheet, &band)) {
        add_band(&spread, sheet, &band);
    }
    return spread;
}
