/* The name of gmlake_interop.h in the last release; the next one will not have it. */
#ifndef GMLAKE_FRIENDS_H
#define GMLAKE_FRIENDS_H

#include "gmlake_interop.h"

#define gml_friend_open gml_interop_open
#define gml_friend_open_serving gml_interop_open_serving
#define gml_friend_alloc gml_interop_alloc
#define gml_friend_free gml_interop_free
#define gml_friend_wait_stream gml_interop_wait_stream
#define gml_friend_wait_device gml_interop_wait_device

#endif
