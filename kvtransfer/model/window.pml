/* How one sender comes to hold one write window of a receiver, and gives it back, over a one-sided
 * channel (kvtransfer/one_sided), for the model checker Spin. README.md maps the states to the code.
 *
 * Frames keep their order in each direction. Bytes take another way: a copy lands at any time after it
 * started. The receiver opens the window and may give it at once; the sender may ask for it meanwhile,
 * before and after it has used it. With MARKED a copy is reported when it starts, and the report waits
 * at the receiver for the bytes (verbs); without it a copy is reported when it has ended (cuda_ipc).
 *
 * Each of these macros removes one defence, and the check must then fail:
 *   NO_RECORD      the receiver gives the window and does not record that the sender holds it
 *   ASK_OVERTAKES  a request is answered before the reports that came before it
 *   ANSWER_HOLDER  a request is answered although the sender holds the window
 *   CLOSE_ENDS_ASK a close ends a request that is under way
 *   DRAINED_EARLY  MARKED: the end of a window overtakes the reports of its copies
 */

#ifndef WRITES
#define WRITES 3    /* copies of the sender */
#endif
#ifndef RELEASES
#define RELEASES 2  /* times that the sender gives the window back by itself */
#endif

mtype = { ASK, LANDED, DRAINED, WINDOW, REFUSED, CLOSE };
mtype = { NEW, OPEN, CLOSING, CLOSED };
mtype = { NONE, ASKED, GIVEN };

chan to_receiver = [8] of { mtype };
chan to_sender = [8] of { mtype };

mtype window = NEW;      /* CLOSED: its blocks may belong to another session */
bool holds;              /* GrantTable: the sender may write */
mtype has = NONE;        /* the sender's entry of the window */
bool closing;            /* the sender must confirm when its last copy has ended */
byte writes = WRITES;    /* copies that are queued */
byte releases = RELEASES;
byte flying;             /* copies under way */
byte landed;             /* bytes of copies that landed, whose report was not handled */

inline confirm() {
  has = NONE;
  closing = false;
  to_receiver!DRAINED
}

/* OneSidedChannel */
active proctype Sender() {
end:
  do
  :: atomic { has == NONE && writes > 0 && !closing -> has = ASKED; to_receiver!ASK }
  :: atomic { has == GIVEN && writes > 0 && !closing ->
       writes--; flying++;
#ifdef MARKED
       to_receiver!LANDED
#endif
     }
  :: atomic { has == GIVEN && releases > 0 && !closing ->
       releases--;
#ifdef MARKED
       confirm() }
#else
       closing = true }
#endif
  :: atomic { closing && flying == 0 -> confirm() }
  :: atomic { to_sender?[WINDOW] -> to_sender?WINDOW; assert(has != GIVEN); has = GIVEN }
  :: atomic { to_sender?[REFUSED] -> to_sender?REFUSED; assert(has == ASKED); has = NONE; writes = 0 }
  :: atomic { to_sender?[CLOSE] -> to_sender?CLOSE;
       if
#ifndef CLOSE_ENDS_ASK
       :: has == ASKED -> skip   /* it was given back before; the answer follows */
       :: else ->
#else
       :: true ->
#endif
            if
            :: closing -> skip
#ifdef MARKED
            :: !closing -> confirm()
#else
            :: !closing -> closing = true
#endif
            fi
       fi }
  od
}

inline give() {
#ifndef NO_RECORD
  holds = true;
#endif
  to_sender!WINDOW
}

inline answer() {
  if
#ifndef ANSWER_HOLDER
  :: holds -> skip   /* the window that was given when it opened is under way */
#endif
  :: !holds && window == OPEN -> holds = true; to_sender!WINDOW
  :: !holds && window != OPEN -> to_sender!REFUSED
#ifdef ANSWER_HOLDER
  :: holds && window == OPEN -> to_sender!WINDOW
  :: holds && window != OPEN -> to_sender!REFUSED
#endif
  fi
}

/* OneSidedReceiver, GrantTable */
active proctype Receiver() {
end:
  do
  /* The window opens before its key is known to the sender. A sender that is not connected yet is not given it. */
  :: atomic { window == NEW -> window = OPEN; if :: give() :: skip fi }
#ifdef ASK_OVERTAKES
  :: atomic { to_receiver??[ASK] -> to_receiver??ASK; answer() }
#else
  :: atomic { to_receiver?[ASK] && window != NEW -> to_receiver?ASK; answer() }
#endif
  :: atomic { to_receiver?[LANDED] && landed > 0 -> to_receiver?LANDED; landed-- }
#ifdef DRAINED_EARLY
  :: atomic { to_receiver??[DRAINED] -> to_receiver??DRAINED;
#else
  :: atomic { to_receiver?[DRAINED] -> to_receiver?DRAINED;
#endif
       holds = false;
       if
       :: window == CLOSING -> window = CLOSED
       :: else -> skip
       fi }
  :: atomic { window == OPEN ->
       if
       :: holds -> window = CLOSING; to_sender!CLOSE
       :: !holds -> window = CLOSED
       fi }
  od
}

/* The copies. */
active proctype Bytes() {
end:
  do
  :: atomic { flying > 0 ->
       assert(window == OPEN || window == CLOSING);
       flying--; landed++;
#ifndef MARKED
       to_receiver!LANDED
#endif
     }
  od
}

/* When nothing can happen any more, nobody holds the window and nothing waits. */
active proctype Watch() {
  timeout ->
    assert(window == CLOSED);
    assert(!holds && has == NONE);
    assert(flying == 0 && landed == 0);
    assert(empty(to_receiver) && empty(to_sender))
}
