------------------------------ MODULE Barrier ------------------------------
(***************************************************************************)
(* The checkpoint barrier alone: slots (shared) against cuts (exclusive),  *)
(* one queue for both, places handed over and never raced for, and         *)
(* cancellation at every wait.  `Cutlock` uses its outcome: a cut opens    *)
(* only when no slot is held, and no slot is entered once a cut is asked   *)
(* for.  Python: `cutlock.barrier`.                                        *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Writers,    \* those who enter slots
    Savers      \* those who enter cuts

VARIABLES
    state,      \* of each: idle, waiting, granted (handed over, not resumed), inside
    queue,      \* who waits, first come first
    slots,      \* the count of slots, granted ones included
    open        \* whether a cut is open, a granted one included

vars == <<state, queue, slots, open>>

Everyone == Writers \cup Savers

\* Nothing is held and nobody waits.
Init ==
    /\ state = [p \in Everyone |-> "idle"]
    /\ queue = <<>>
    /\ slots = 0
    /\ open = FALSE

\* The door: who comes while somebody waits, waits too.
DoorOpen(p) == queue = <<>>

\* A cut waits for this many slots.
Drains(n) == n = 0

\* Whether `p` may enter without waiting.
Free(p) ==
    /\ DoorOpen(p)
    /\ ~open
    /\ p \in Savers => Drains(slots)

\* How many of the head of queue `q` can be handed a place: all slots up to the first cut, or
\* that cut alone.
RECURSIVE Handed(_, _, _)
Handed(q, n, isOpen) ==
    IF q = <<>> \/ isOpen THEN <<>>
    ELSE IF Head(q) \in Writers
         THEN <<Head(q)>> \o Handed(Tail(q), n + 1, FALSE)
         ELSE IF Drains(n) THEN <<Head(q)>> ELSE <<>>

\* Give free places to the head of the queue; `s` is the state without the places given back.
HandOver(s, q, n, isOpen) ==
    LET given == Handed(q, n, isOpen)
        Given == {given[i] : i \in 1..Len(given)}
    IN  /\ state' = [p \in Everyone |-> IF p \in Given THEN "granted" ELSE s[p]]
        /\ queue' = SubSeq(q, Len(given) + 1, Len(q))
        /\ slots' = n + Cardinality(Given \cap Writers)
        /\ open' = (isOpen \/ Given \cap Savers # {})

\* Enter at once: the fast path of slots and cuts.
EnterFast(p) ==
    /\ state[p] = "idle"
    /\ Free(p)
    /\ state' = [state EXCEPT ![p] = "inside"]
    /\ slots' = IF p \in Writers THEN slots + 1 ELSE slots
    /\ open' = (p \in Savers)
    /\ UNCHANGED queue

\* Where a waiter queues up.
Queued(q, p) == Append(q, p)

\* Queue up; a cut that queues closes the door for all slots that come later.
Wait(p) ==
    /\ state[p] = "idle"
    /\ ~Free(p)
    /\ state' = [state EXCEPT ![p] = "waiting"]
    /\ queue' = Queued(queue, p)
    /\ UNCHANGED <<slots, open>>

\* The task that was handed a place runs again.
Resume(p) ==
    /\ state[p] = "granted"
    /\ state' = [state EXCEPT ![p] = "inside"]
    /\ UNCHANGED <<queue, slots, open>>

\* What is left of the count and of the open cut when `p` gives its place back.
SlotsWithout(p) == IF p \in Writers THEN slots - 1 ELSE slots
OpenWithout(p) == open /\ p \notin Savers

\* A section ends and hands its place over.
Leave(p) ==
    /\ state[p] = "inside"
    /\ HandOver([state EXCEPT ![p] = "idle"], queue, SlotsWithout(p), OpenWithout(p))

\* Those behind a cancelled waiter may have waited for it alone.
HandsOverOnCancel == TRUE

\* The queue when the waiter `p` has been cancelled.
Remaining(q, p) == SelectSeq(q, LAMBDA w : w # p)

\* A waiter is cancelled.
CancelWaiting(p) ==
    /\ state[p] = "waiting"
    /\ LET rest == Remaining(queue, p)
       IN  IF HandsOverOnCancel
           THEN HandOver([state EXCEPT ![p] = "idle"], rest, slots, open)
           ELSE /\ state' = [state EXCEPT ![p] = "idle"]
                /\ queue' = rest
                /\ UNCHANGED <<slots, open>>

\* What a cancelled waiter gives back of the place that it was handed.
GivesBack == TRUE

\* A waiter is cancelled in the very turn in which it was handed its place.
CancelGranted(p) ==
    /\ state[p] = "granted"
    /\ IF GivesBack
       THEN HandOver([state EXCEPT ![p] = "idle"], queue, SlotsWithout(p), OpenWithout(p))
       ELSE HandOver([state EXCEPT ![p] = "idle"], queue, slots, open)

Next == \E p \in Everyone :
    EnterFast(p) \/ Wait(p) \/ Resume(p) \/ Leave(p) \/ CancelWaiting(p) \/ CancelGranted(p)

\* Tasks that can run do run, and sections end; nobody has to ask, and nobody has to cancel.
Fairness == \A p \in Everyone : WF_vars(Resume(p)) /\ WF_vars(Leave(p))

Spec == Init /\ [][Next]_vars /\ Fairness

----------------------------------------------------------------------------
TypeOK ==
    /\ state \in [Everyone -> {"idle", "waiting", "granted", "inside"}]
    /\ slots \in 0..Cardinality(Writers)
    /\ open \in BOOLEAN

Holders(S) == {p \in S : state[p] \in {"granted", "inside"}}

\* P1: an open cut excludes every slot and every other cut.
Exclusion ==
    /\ Cardinality(Holders(Savers)) <= 1
    /\ Holders(Savers) # {} => Holders(Writers) = {}

\* The counts are those of the holders, whatever was cancelled.
Balance ==
    /\ slots = Cardinality(Holders(Writers))
    /\ open = (Holders(Savers) # {})

\* Who waits is queued, once.
EachQueuedOnce ==
    /\ {queue[i] : i \in 1..Len(queue)} = {p \in Everyone : state[p] = "waiting"}
    /\ Len(queue) = Cardinality({p \in Everyone : state[p] = "waiting"})

\* Nobody waits for a place that is free.
NoIdlePlace == queue # <<>> => Handed(queue, slots, open) = <<>>

\* P7: a requested cut is taken, a waiting slot enters, unless it is cancelled.
CutIsTaken == \A p \in Savers : state[p] = "waiting" ~> state[p] # "waiting"
SlotEnters == \A p \in Writers : state[p] = "waiting" ~> state[p] # "waiting"
=============================================================================
