/* The hand-off protocol of kvtransfer, for the model checker Spin: two sessions of three blocks each,
 * an arena of three blocks, and one crash of either process. README.md maps the states to the code.
 *
 * A session starts at any time, before or after the crash, so the second one also stands for what the
 * new process does. Messages may be lost, repeated and overtake each other. Any wait may end at any
 * moment, as if its time-out had passed. The blocks of a session are interchangeable, so counts stand
 * for sets of blocks, and one variable names the owner of the arena.
 *
 * With PIECES, the model's layers also have a state, which is sent in so many pieces. A block is
 * final when it is computed, but each chunk of a prompt changes the state, so its pieces may be
 * sent only after the last chunk.
 *
 * Each of these macros removes one defence, and the check must then fail:
 *   NO_FENCE     a receiver releases granted blocks before their window is closed
 *   NO_DRAIN     a sender releases source blocks while their writes are outstanding
 *   COMMIT_OPEN  a receiver commits before the window is closed
 *   NO_DEADLINE  a receiver waits for SEAL for ever
 *   STATE_EARLY  a sender posts pieces of the state before the last chunk
 *   STATE_PART   a receiver commits when the blocks and a piece of the state have arrived
 * NO_CRASH leaves the crash out.
 */

#define SESSIONS 2
#ifndef BLOCKS
#define BLOCKS 3
#endif
#ifndef PIECES
#define PIECES 0   /* of a state */
#endif
#define NOBODY SESSIONS
#ifndef LOSSES
#define LOSSES 1   /* messages that are lost */
#endif
#ifndef REPEATS
#define REPEATS 1  /* messages that come twice, or are sent again */
#endif
#ifndef TWICE
#define TWICE 1    /* writes that land twice */
#endif

mtype = { OFFER, GRANT, REFUSE, SEAL, ACK, FAIL, ABORT };
mtype = { NONE, OFFERED, STREAMING, SEALED, ENDED, GONE };
mtype = { PENDING, RECEIVING, CLOSING, DRAINING, QUARANTINED, COMMITTED, RELEASED, REFUSED, WITHDRAWN };

mtype sender[SESSIONS] = NONE;
mtype receiver[SESSIONS] = NONE;
bool sealed[SESSIONS];      /* SEAL has come */
bool window[SESSIONS];      /* writes of the session may land */
byte to_post[SESSIONS];     /* writes of blocks that the sender has not posted */
byte posted[SESSIONS];      /* writes of blocks that are outstanding */
byte arrived[SESSIONS];     /* blocks that have arrived */
bool computed[SESSIONS];    /* the last chunk of a prompt with a state */
bool stale[SESSIONS];       /* a piece of the state was posted before that */
byte state_to_post[SESSIONS], state_posted[SESSIONS], state_arrived[SESSIONS];  /* pieces */
byte owner = NOBODY;        /* of the arena's blocks */
bool crashed;
byte losses = LOSSES;
byte repeats = REPEATS;
byte twice = TWICE;

chan to_receiver[SESSIONS] = [2] of { mtype };
chan to_sender[SESSIONS] = [2] of { mtype };

/* Puts a message into a channel. A full channel loses the message, too, and so does the end of the
 * process that would read it. */
inline send(channel, reader, message) {
  if
  :: reader == GONE || full(channel) -> skip
  :: reader != GONE && nfull(channel) -> channel!message
  :: reader != GONE && losses > 0 -> losses--
  :: reader != GONE && repeats > 0 && empty(channel) -> repeats--; channel!message; channel!message
  fi
}

inline clear(channel) {
  do
  :: nempty(channel) -> channel?_
  :: empty(channel) -> break
  od
}

inline stop(s) {
  sender[s] = DRAINING;
  to_post[s] = 0;
  state_to_post[s] = 0
}

/* SenderSession. In DRAINING it waits for its outstanding writes. */
proctype Sender(byte s) {
end:
  do
  /* messages, in any order */
  :: atomic { to_sender[s]??[GRANT] -> to_sender[s]??GRANT;
       if
       :: sender[s] == OFFERED -> sender[s] = STREAMING; to_post[s] = BLOCKS;
            state_to_post[s] = PIECES
       :: sender[s] == DRAINING || sender[s] == ENDED -> send(to_receiver[s], receiver[s], FAIL)
       :: else -> skip
       fi }
  :: atomic { to_sender[s]??[REFUSE] -> to_sender[s]??REFUSE;
       if
       :: sender[s] == OFFERED -> sender[s] = DRAINING
       :: else -> skip
       fi }
  :: atomic { to_sender[s]??[ACK] -> to_sender[s]??ACK;
       if
       :: sender[s] == SEALED -> sender[s] = DRAINING
       :: else -> skip
       fi }
  :: atomic { to_sender[s]??[ABORT] -> to_sender[s]??ABORT;
       if
       :: sender[s] == ENDED -> skip
       :: else -> stop(s)
       fi }
  :: atomic { sender[s] == NONE -> sender[s] = OFFERED; send(to_receiver[s], receiver[s], OFFER) }
  :: atomic { sender[s] == STREAMING && to_post[s] > 0 -> to_post[s]--; posted[s]++ }
  :: atomic { sender[s] == STREAMING && PIECES > 0 && !computed[s] -> computed[s] = true }
#ifdef STATE_EARLY
  :: atomic { sender[s] == STREAMING && state_to_post[s] > 0 ->
       stale[s] = stale[s] || !computed[s]; state_to_post[s]--; state_posted[s]++ }
#else
  :: atomic { sender[s] == STREAMING && state_to_post[s] > 0 && computed[s] ->
       state_to_post[s]--; state_posted[s]++ }
#endif
  :: atomic { sender[s] == STREAMING && to_post[s] == 0 && state_to_post[s] == 0 &&
              (PIECES == 0 || computed[s]) ->
       sender[s] = SEALED; send(to_receiver[s], receiver[s], SEAL) }
  /* the state is repeated */
  :: atomic { sender[s] == OFFERED && repeats > 0 && empty(to_receiver[s]) && receiver[s] != GONE ->
       repeats--; to_receiver[s]!OFFER }
  :: atomic { sender[s] == SEALED && repeats > 0 && empty(to_receiver[s]) && receiver[s] != GONE ->
       repeats--; to_receiver[s]!SEAL }
  /* the worker aborts, a lease or the deadline ends, a write is lost */
  :: atomic { sender[s] == OFFERED || sender[s] == STREAMING || sender[s] == SEALED ->
       stop(s); send(to_receiver[s], receiver[s], FAIL) }
#ifdef NO_DRAIN
  :: atomic { sender[s] == DRAINING -> sender[s] = ENDED }
#else
  :: atomic { sender[s] == DRAINING && posted[s] + state_posted[s] == 0 -> sender[s] = ENDED }
#endif
  od
}

#ifdef STATE_PART
#define COMPLETE(s) (arrived[s] == BLOCKS && state_arrived[s] > 0)
#else
#define COMPLETE(s) (arrived[s] == BLOCKS && state_arrived[s] == PIECES)
#endif

inline end_receiver(s, state) {
  receiver[s] = state;
  sealed[s] = false
}

inline release(s) {
  arrived[s] = 0;
  state_arrived[s] = 0;
  owner = NOBODY
}

/* ReceiverSession, and the decode worker that reserves and uses the blocks */
proctype Receiver(byte s) {
end:
  do
  :: atomic { to_receiver[s]??[OFFER] -> to_receiver[s]??OFFER;
       if
       :: receiver[s] == NONE -> receiver[s] = PENDING
       :: receiver[s] == RECEIVING -> send(to_sender[s], sender[s], GRANT)
       :: receiver[s] == REFUSED -> send(to_sender[s], sender[s], REFUSE)
       :: else -> skip
       fi }
  :: atomic { to_receiver[s]??[SEAL] -> to_receiver[s]??SEAL;
       if
       :: receiver[s] == RECEIVING -> sealed[s] = true
       :: receiver[s] == COMMITTED -> send(to_sender[s], sender[s], ACK)
       :: receiver[s] == CLOSING -> skip
       :: receiver[s] == PENDING -> receiver[s] = REFUSED; send(to_sender[s], sender[s], REFUSE)
       :: else -> send(to_sender[s], sender[s], ABORT)
       fi }
  :: atomic { to_receiver[s]??[FAIL] -> to_receiver[s]??FAIL;
       if
       :: receiver[s] == PENDING -> receiver[s] = WITHDRAWN
       :: receiver[s] == RECEIVING || receiver[s] == CLOSING -> receiver[s] = DRAINING
       :: else -> skip
       fi }
  /* the worker grants, or refuses because of a full arena, a cancel or a time-out */
  :: atomic { receiver[s] == PENDING && owner == NOBODY ->
       owner = s; window[s] = true; receiver[s] = RECEIVING; send(to_sender[s], sender[s], GRANT) }
  :: atomic { receiver[s] == PENDING -> receiver[s] = REFUSED; send(to_sender[s], sender[s], REFUSE) }
  /* everything has arrived and SEAL agrees */
  :: atomic { receiver[s] == RECEIVING && sealed[s] && COMPLETE(s) ->
#ifdef COMMIT_OPEN
       end_receiver(s, COMMITTED); send(to_sender[s], sender[s], ACK) }
#else
       receiver[s] = CLOSING }
  :: atomic { receiver[s] == CLOSING && !window[s] ->
       end_receiver(s, COMMITTED); send(to_sender[s], sender[s], ACK) }
#endif
  /* The committed blocks are used, and released when the request ends. */
  :: atomic { receiver[s] == COMMITTED && owner == s ->
       assert(arrived[s] == BLOCKS && state_arrived[s] == PIECES && !stale[s]); release(s) }
  /* the worker aborts, or a lease or the deadline ends */
#ifndef NO_DEADLINE
  :: atomic { receiver[s] == RECEIVING || receiver[s] == CLOSING ->
       receiver[s] = DRAINING; send(to_sender[s], sender[s], ABORT) }
#endif
#ifdef NO_FENCE
  :: atomic { receiver[s] == DRAINING -> end_receiver(s, RELEASED); release(s) }
#else
  :: atomic { (receiver[s] == DRAINING || receiver[s] == QUARANTINED) && !window[s] ->
       end_receiver(s, RELEASED); release(s) }
  :: atomic { receiver[s] == DRAINING && window[s] -> receiver[s] = QUARANTINED }
#endif
  od
}

/* A write lands: it reads its source, and it changes a block of the receiver. */
inline land(s, count, all, outstanding) {
  assert(sender[s] != ENDED);
  assert(owner == s);
  assert(receiver[s] != COMMITTED && receiver[s] != RELEASED);
  if
  :: count < all -> count++; outstanding--
  :: count < all && twice > 0 -> count++; twice--   /* it will land once more */
  :: count == all -> outstanding--
  fi
}

/* The transport: writes land at any time while their window is open. */
proctype Transport(byte s) {
end:
  do
  :: atomic { posted[s] > 0 && window[s] -> land(s, arrived[s], BLOCKS, posted[s]) }
  :: atomic { state_posted[s] > 0 && window[s] ->
       land(s, state_arrived[s], PIECES, state_posted[s]) }
  /* refused */
  :: atomic { posted[s] > 0 && !window[s] -> posted[s]-- }
  :: atomic { state_posted[s] > 0 && !window[s] -> state_posted[s]-- }
  /* stopped or fenced */
  :: atomic { posted[s] + state_posted[s] > 0 && sender[s] == DRAINING ->
       posted[s] = 0; state_posted[s] = 0 }
  /* The close: at once, or after a time in which writes still land. */
  :: atomic { window[s] && (receiver[s] == CLOSING || receiver[s] == DRAINING ||
                            receiver[s] == QUARANTINED || receiver[s] == COMMITTED ||
                            receiver[s] == RELEASED) -> window[s] = false }
  od
}

/* One process ends and starts again. What it has sent stays in the network. */
proctype Crash() {
  byte s;
end:
  if
  :: atomic {
       for (s : 0 .. SESSIONS - 1) {
         if
         :: sender[s] != NONE -> sender[s] = GONE; to_post[s] = 0; state_to_post[s] = 0;
              clear(to_sender[s])
         :: else -> skip
         fi
       }
       crashed = true; s = 0 }
  :: atomic {
       for (s : 0 .. SESSIONS - 1) {
         if
         :: receiver[s] != NONE || sender[s] != NONE ->
              receiver[s] = GONE; window[s] = false; sealed[s] = false; arrived[s] = 0;
              state_arrived[s] = 0;
              clear(to_receiver[s])
         :: else -> skip
         fi
       }
       crashed = true; owner = NOBODY; s = 0 }
  fi
}

#define QUIET(s) (sender[s] == ENDED || sender[s] == GONE)
#define OVER(s)                                                                                \
  (receiver[s] == NONE || receiver[s] == GONE || receiver[s] == COMMITTED ||                   \
   receiver[s] == RELEASED || receiver[s] == REFUSED || receiver[s] == WITHDRAWN)

/* When nothing can happen any more, every session has ended and nothing is left over. */
active proctype Watch() {
  timeout ->
    assert(QUIET(0) && QUIET(1));
    assert(OVER(0) && OVER(1));
    assert(owner == NOBODY);
    assert(!window[0] && !window[1]);
    assert(posted[0] + posted[1] + state_posted[0] + state_posted[1] == 0)
}

init {
  atomic {
    run Sender(0); run Receiver(0); run Transport(0);
    run Sender(1); run Receiver(1); run Transport(1)
#ifndef NO_CRASH
    ; run Crash()
#endif
  }
}
