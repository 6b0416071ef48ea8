/* Every type that crosses the line, reachable from exported data, for abidiff (abidiff.sh): the
 * table of a plugin leads to all but the extensions, which nothing points at. */
#include <bloomery/bloomery.h>
#include <bloomery/chat.h>
#include <bloomery/text.h>

BL_EXPORT const bl_plugin bloomery_plugin;
BL_EXPORT const bl_chat_1 bloomery_chat_1;
BL_EXPORT const bl_text_1 bloomery_text_1;
BL_EXPORT const bl_args bloomery_args;
BL_EXPORT const bl_workspace bloomery_workspace;
