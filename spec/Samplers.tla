------------------------------ MODULE Samplers ------------------------------
(***************************************************************************)
(* The four samplers: what they admit, which groups a step trains, and     *)
(* which can never train any more.                                         *)
(***************************************************************************)
EXTENDS State

Gated == Sampler # "windowed"
Stamping == Sampler = "in_order"
Credits == Sampler \in {"in_order", "ready_first"}
\* The start weight is only kept where the choice of groups looks at it.
Weight == IF Sampler \in {"weight_fifo", "windowed"} THEN version ELSE -1

InWindow(p) == wt[p] >= version - Window

\* Finished groups that can never be selected any more.
Evictable ==
    CASE Sampler = "in_order"    -> {p \in index : idx[p] < version}
      [] Sampler = "ready_first" -> {}
      [] OTHER                   -> {p \in index : ~InWindow(p)}

\* Groups that are owed to the trainer: finished or admitted.
Live == index \cup Admitted

OldestWeight ==
    LET Ws == {wt[p] : p \in {q \in Live : InWindow(q)}}
    IN  IF Ws = {} THEN -1 ELSE CHOOSE w \in Ws : \A x \in Ws : w <= x

\* All that the gate let in has been lost: only an empty step opens it again.
EmptyStepDue == cursor >= version + Window

\* Groups that step `version` trains.
Need ==
    CASE Credits -> MaxOf(0, Size - short[version])
      [] Sampler = "weight_fifo" ->
            LET n == Cardinality({p \in Live : wt[p] = OldestWeight})
            IN  IF OldestWeight # -1 \/ EmptyStepDue THEN Min(Size, n) ELSE Size
      [] OTHER -> Size

Candidates ==
    CASE Stamping -> {p \in index : idx[p] = version}
      [] Sampler = "ready_first" -> index
      [] Sampler = "weight_fifo" -> {p \in index : wt[p] = OldestWeight}
      [] OTHER -> {p \in index : InWindow(p)}

\* The step whose groups have not been selected yet.
NextSelection == IF tp \in {"idle", "saving", "sync"} THEN version ELSE version + 1

\* The shortfall with `n` more groups from step `s` on; a step goes without all of them at most.
RECURSIVE Credited(_, _)
Credited(s, n) ==
    IF n = 0 THEN short
    ELSE LET part == Min(n, Size - short[s])
         IN  [Credited(s + 1, n - part) EXCEPT ![s] = @ + part]

----------------------------------------------------------------------------
(* Choices.  Where several groups will do, the first of them are taken. *)

\* The sets of `n` of `C` that may be taken: `first`, and no other.
Chosen(C, n, first) == {first}

\* `order` with one more group.
Recorded(p) == Append(order, p)

\* The first `n` of the finished groups in `C`.
FirstFinished(C, n) ==
    LET s == SelectSeq(order, LAMBDA p : p \in C)
    IN  {s[i] : i \in 1..n}

\* The sets of groups that may be trained now.
Selections ==
    LET n == IF Settled THEN Min(Need, Cardinality(index)) ELSE Need
    IN  CASE Settled /\ index = {} -> {}
          [] Cardinality(Candidates) < n -> {}
          [] OTHER -> Chosen(Candidates, n, FirstFinished(Candidates, n))

\* The sets of `n` spares that may be taken.
Spares(n) ==
    Chosen(pool, n, {p \in pool : Cardinality({q \in pool : Earlier(q, p)}) < n})

\* Rollouts that can never train any more, and the sets of one that may go next.
Stale == {p \in Prompts : task[p] = "gen" /\ ~InWindow(p)}
FirstStale ==
    {p \in Stale : \A q \in Stale :
        p = q \/ idx[p] < idx[q] \/ (idx[p] = idx[q] /\ Earlier(p, q))}
NextStale == Chosen(Stale, 1, FirstStale)
=============================================================================
