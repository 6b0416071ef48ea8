/* Everything of the core ABI. Extensions have headers of their own: chat.h, text.h. */
#ifndef BLOOMERY_BLOOMERY_H_
#define BLOOMERY_BLOOMERY_H_

#include <bloomery/base.h>
#include <bloomery/graph.h>
#include <bloomery/model.h>
#include <bloomery/op.h>
#include <bloomery/operators.h>
#include <bloomery/plugin.h>
#include <bloomery/seat.h>
#include <bloomery/tensor.h>

#endif /* BLOOMERY_BLOOMERY_H_ */
