/* A lake's counters in a file that others map, see gml_published. */
#ifndef GML_LAKE_PUBLISH_H
#define GML_LAKE_PUBLISH_H

typedef struct gml_board gml_board;

/* Unlinks the file and frees the board; NULL is allowed. A child of fork() leaves the file. */
void gml_board_close(gml_board *board);

#endif
