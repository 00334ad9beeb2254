/* Files that go to another process of this user in one message. */
#ifndef GML_TORCH_PARCEL_H
#define GML_TORCH_PARCEL_H

#include "driver/handed.h"

enum { GML_PARCEL_NAME_WORDS = 2 };

/* Opens a socket that receives; `name` is where to send to, never zero. Returns -1 where there can
 * be none: then nothing is handed over as files. */
int gml_parcel_open(uint64_t name[GML_PARCEL_NAME_WORDS]);

/* Sends the pieces to a socket of that name, without waiting, and closes them here. Where they
 * cannot be sent their memory goes back to the device. */
void gml_parcel_send(int socket, const uint64_t name[GML_PARCEL_NAME_WORDS], gml_handed *pieces);

/* Adds what has been sent to the socket by now; returns how much memory it is. */
uint64_t gml_parcel_receive(int socket, gml_handed *pieces);

#endif
