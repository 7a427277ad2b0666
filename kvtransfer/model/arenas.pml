/* The order in which hand-offs take KV blocks of two arenas (kvtransfer/waiting.md), for the model checker
 * Spin: requests of any size between any two of four workers. When nothing can happen any more, every request
 * must have ended.
 *
 * The arenas are numbered in the order of the cluster: 0 only prefills, 1 and 2 do both, 3 only decodes. Each
 * engine admits strictly by rank, and the number of a request is its rank.
 *
 * Each of these macros removes one defence, and the check must then fail:
 *   NO_ORDER         a hand-off takes its arenas in any order
 *   REDIRECT_BACK    a refused prompt that has blocks is offered to an earlier arena
 *   PREEMPT_PROMPTS  a prompt loses its blocks while the decode worker holds blocks for it
 */

#define ARENAS 4
#define BLOCKS 3   /* of an arena */
#ifndef REQUESTS
#define REQUESTS 3
#endif

byte free[ARENAS] = BLOCKS;
byte ended;
/* bit r of waits[a]: request r is in the queue of arena a */
byte waits[ARENAS];

#define queue(a) waits[a] = waits[a] | (1 << r)
#define leave(a) waits[a] = waits[a] & ~(1 << r)
/* r is the first in the queue, and its blocks are free */
#define admitted(a) ((waits[a] & ((1 << r) - 1)) == 0 && free[a] >= size)
#define take(a) atomic { admitted(a) -> free[a] = free[a] - size; leave(a) }

proctype Request(byte r) {
  byte prefill, decode, first, second, size;
  atomic {
    if :: size = 1 :: size = 2 :: size = BLOCKS fi;
    if :: prefill = 0 :: prefill = 1 :: prefill = 2 fi;
    if :: decode = 1 :: decode = 2 :: decode = 3 fi;
    if
    :: prefill == decode -> decode = 3
    :: else -> skip
    fi
  };
  atomic {
#ifdef NO_ORDER
    if
    :: first = prefill; second = decode
    :: first = decode; second = prefill
    fi;
#else
    if
    :: prefill < decode -> first = prefill; second = decode
    :: else -> first = decode; second = prefill
    fi;
#endif
    queue(first)
  };
  take(first);
  /* the decode worker may refuse before it grants: the prefill worker keeps the blocks, and the offer goes to
     another decode worker */
  atomic {
    if
    :: skip
    :: second == decode && decode == 2 && prefill != 3 -> decode = 3; second = 3
    :: second == decode && decode == 3 && prefill < 2 -> decode = 2; second = 2
#ifdef REDIRECT_BACK
    :: second == decode && prefill == 2 -> decode = 1; second = 1
#endif
    fi;
    queue(second)
  };
  take(second);
#ifdef PREEMPT_PROMPTS
  if
  :: atomic { free[prefill] = free[prefill] + size; queue(prefill) }; take(prefill)
  :: skip
  fi;
#endif
  /* the prompt is computed and sent; the answer is generated; a sequence that is preempted holds nothing */
  free[prefill] = free[prefill] + size;
  if
  :: atomic { free[decode] = free[decode] + size; queue(decode) }; take(decode)
  :: skip
  fi;
  atomic { free[decode] = free[decode] + size; ended++ }
}

/* Runs when nothing else can. */
proctype Watch() {
  timeout -> assert(ended == REQUESTS)
}

init {
  byte r;
  atomic {
    for (r : 0 .. REQUESTS - 1) { run Request(r) }
    run Watch()
  }
}
