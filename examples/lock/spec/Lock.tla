-------------------------------- MODULE Lock --------------------------------
(* A fair mutex whose waiters can be cancelled.  Code: `lock.py`.           *)
(* What the code does between two awaits is one action.                     *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANT People

VARIABLES
    owner,      \* whose it is, "nobody" if it is free
    queue,      \* who has queued up, first come first
    at          \* where each stands; see TypeOK

vars == <<owner, queue, at>>

Init ==
    /\ owner = "nobody"
    /\ queue = <<>>
    /\ at = [p \in People |-> "idle"]

\* Who waits and was not cancelled: a cancelled one stays in the queue until it notices.
Waiting(q) == SelectSeq(q, LAMBDA p : at[p] = "waiting")
Without(q, p) == SelectSeq(q, LAMBDA r : r # p)

\* Whether who comes need not wait.
Free == owner = "nobody" /\ Waiting(queue) = <<>>

\* Those who may be handed the lock, the next one first.
InTurn(q) == Waiting(q)

\* Whose it is when it is given up and nobody waits.
Unowned == "nobody"

\* Give the lock to the next who waits; `where` says where all stand without who gives it up.
HandOver(where) ==
    LET turn == InTurn(queue)
    IN  IF turn = <<>>
        THEN /\ owner' = Unowned
             /\ at' = where
             /\ UNCHANGED queue
        ELSE /\ owner' = Head(turn)
             /\ at' = [where EXCEPT ![Head(turn)] = "granted"]
             /\ queue' = Without(queue, Head(turn))

Enter(p) ==
    /\ at[p] = "idle" /\ Free
    /\ owner' = p
    /\ at' = [at EXCEPT ![p] = "inside"]
    /\ UNCHANGED queue

Wait(p) ==
    /\ at[p] = "idle" /\ ~Free
    /\ queue' = Append(queue, p)
    /\ at' = [at EXCEPT ![p] = "waiting"]
    /\ UNCHANGED owner

\* Who was handed the lock runs again.
Resume(p) ==
    /\ at[p] = "granted"
    /\ at' = [at EXCEPT ![p] = "inside"]
    /\ UNCHANGED <<owner, queue>>

Release(p) == at[p] = "inside" /\ HandOver([at EXCEPT ![p] = "idle"])

\* The task is cancelled while it waits, or in the turn of the hand-over.
Cancel(p) ==
    /\ at[p] \in {"waiting", "granted"}
    /\ at' = [at EXCEPT ![p] = "leaving"]
    /\ UNCHANGED <<owner, queue>>

\* Whether a task that is cancelled in the turn of its hand-over passes the lock on.
GivesBack == TRUE

\* A cancelled task runs again, and leaves.
Notice(p) ==
    /\ at[p] = "leaving"
    /\ IF owner = p /\ GivesBack
       THEN HandOver([at EXCEPT ![p] = "idle"])
       ELSE /\ at' = [at EXCEPT ![p] = "idle"]
            /\ queue' = Without(queue, p)
            /\ UNCHANGED owner

Next == \E p \in People :
    Enter(p) \/ Wait(p) \/ Resume(p) \/ Release(p) \/ Cancel(p) \/ Notice(p)

\* Tasks that can run do run, and nobody keeps the lock for ever.
Fairness == \A p \in People : WF_vars(Resume(p)) /\ WF_vars(Release(p)) /\ WF_vars(Notice(p))

Spec == Init /\ [][Next]_vars /\ Fairness

----------------------------------------------------------------------------
TypeOK ==
    /\ owner \in People \cup {"nobody"}
    /\ at \in [People -> {"idle", "waiting", "granted", "inside", "leaving"}]

Holders == {p \in People : at[p] \in {"granted", "inside"}}

\* Nobody shares the lock, and nobody has it whose it is not.
Exclusion == Holders \subseteq {owner} /\ Cardinality(Holders) <= 1

\* While a task waits, the lock is owned by a task that will pass it on.
NoLostWakeup == Waiting(queue) # <<>> => owner # "nobody" /\ at[owner] # "idle"

\* A waiting task gets the lock, unless it is cancelled.
Served == \A p \in People : at[p] = "waiting" ~> at[p] # "waiting"
=============================================================================
