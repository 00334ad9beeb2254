/* Letters that processes of one user send each other, with files beside them: about memory that one
 * of them lacks, and about tensors that they share.
 *
 * A letter goes over a connection between two of them. Who may be asked listens at a name that
 * begins with the version of this format: another version is a stranger. The names are abstract, so
 * nothing of them is left when a process ends, however it ends, and who waits for it is told.
 * Processes of other users may use such names, too; both ends look whose the other one is.
 *
 * No lock: a socket belongs to one thread at a time. A child of fork() has none of them.
 */
#ifndef GML_TORCH_LETTERS_H
#define GML_TORCH_LETTERS_H

#include "gmlake_share.h"

#include <sys/types.h>

enum {
    GML_LETTER_NAME_BYTES = 64,
    GML_LETTER_MOST_FILES = 128, /* beside one letter */
    GML_LETTER_TEXT_BYTES = 320
};

typedef enum gml_letter_kind {
    GML_LETTER_LOOK = 1, /* asks what is idle; answered by TOLD */
    GML_LETTER_TOLD,
    GML_LETTER_TAKE,    /* asks for memory; answered by WORKING and FILES as they come, then GAVE */
    GML_LETTER_WORKING, /* what was asked for follows as work ends */
    GML_LETTER_WAITING, /* the same, and no word will come before that */
    GML_LETTER_FILES,
    GML_LETTER_GAVE,
    GML_LETTER_FETCH, /* asks for the files of a shared block; answered by FILES, or REFUSED */
    GML_LETTER_REFUSED,
    GML_LETTER_COUNT, /* asks for counters; answered by a COUNTED for each device, and one more */
    GML_LETTER_COUNTED,
} gml_letter_kind;

enum {
    GML_LETTER_AS_FILES =
        1,                /* TAKE: files are welcome, so that it need not be free on the device */
    GML_LETTER_YIELDS = 2 /* TOLD: more can be given up than is idle; TAKE: it is to be */
};

typedef struct gml_letter {
    uint32_t kind;
    uint32_t flags;
    uint32_t count;                  /* FILES: how many; their sizes follow */
    int32_t priority;                /* TOLD, with the weight: who gives first, see */
    uint32_t weight;                 /* gml_torch_share() */
    uint32_t unused;                 /* 0 */
    uint64_t bytes;                  /* TAKE: wanted; GAVE: given; FILES, COUNTED: that follow */
    uint64_t idle_bytes, held_bytes; /* TOLD, GAVE: by now */
    uint64_t address, mark;          /* FETCH: of the block, see gml_lake_lend() */
    union {
        uint64_t sizes[GML_LETTER_MOST_FILES]; /* FILES; COUNTED: as gml_counters */
        char text[GML_LETTER_TEXT_BYTES];      /* REFUSED; may lack its end */
    } rest;
    uint32_t lost; /* is not sent: files beside it that this process may not open */
} gml_letter;

/* The name of one of several places of a group; the group is any text. */
void gml_letter_name(char out[GML_LETTER_NAME_BYTES], uint64_t group, unsigned place);

/* A number for a text, the same in every process. */
uint64_t gml_letter_group(const char *text);

/* Listens at a name; a negative errno, -EADDRINUSE if another process does. */
int gml_letter_listen(const char *name);

/* The next connection of this user's to a listening socket; -1: there is none. */
int gml_letter_accept(int listener);

/* Connects with who listens there, without waiting; *process: its number, 0 if it is not known
 * here. -1: nobody of this user's does; errno says why. */
int gml_letter_connect(const char *name, pid_t *process);

/* The same with a socket that is connected already or was made for it, -1 at first, and is kept for
 * the next name where nobody listens: many names are tried at once. */
int gml_letter_try(const char *name, int *unused, pid_t *process);

/* Sends without waiting; false where it cannot be sent now, or nobody is there any more. The files
 * stay the caller's. */
bool gml_letter_send(int socket, const gml_letter *letter, const int *files);

/* What gml_letter_receive() found. */
typedef enum gml_received { GML_RECEIVED, GML_RECEIVED_NOTHING, GML_RECEIVED_END } gml_received;

/* Takes the next letter. `files`, of which there may be GML_LETTER_MOST_FILES, are the caller's
 * now, as many as letter->count; NULL: they are closed. letter->lost more were sent. END: the other
 * one is gone, or writes what is no letter. */
gml_received gml_letter_receive(int socket, gml_letter *letter, int *files);

/* The same, and waits for it; false, and errno says why, where none comes within so many
 * milliseconds. */
bool gml_letter_await(int socket, gml_letter *letter, int *files, int most_ms);

/* Whether the system has stopped a process, or it is about to be gone; true also of one that it
 * says nothing of. */
bool gml_letter_is_stopped(pid_t process);

void gml_letter_close(int socket);

#endif
