---------------------------- MODULE StoryCutlock ----------------------------
(***************************************************************************)
(* The fault that the project starts from, with its own numbers: gate      *)
(* window 1, four prompts a step, trainer at step 7, dispatch cursor 6,    *)
(* and a save that reads the cursor before anything else.                  *)
(***************************************************************************)
EXTENDS LabelledCutlock

\* Seven batches have been trained, the bundle of step 6 is on disk.
AtStepSeven ==
    LET Before7 == {p \in Prompts : p[1] <= 7}
        Before6 == {p \in Prompts : p[1] <= 6}
        Once(S) == [p \in Prompts |-> IF p \in S THEN 1 ELSE 0]
    IN  /\ up = "running"
        /\ pos = 7 /\ epoch = 0 /\ raising = FALSE
        /\ pool = {}
        /\ led = AllNone /\ idx = AllMinus /\ wt = AllMinus /\ task = AllNone
        /\ gate = FALSE /\ cursor = 6
        /\ index = {} /\ order = <<>>
        /\ rows = {} /\ derived = {} /\ deferred = {} /\ claimed = {}
        /\ version = 7 /\ short = Nothing.short /\ tp = "idle" /\ computed = {}
        /\ sv = "none" /\ door = "open" /\ cap = NoCapture
        /\ disk = [Nothing EXCEPT !.version = 6, !.cursor = 5, !.pos = 6,
                                  !.trained = Once(Before6), !.files = AllFiles,
                                  !.of = [a \in Artifacts |-> 6]]
        /\ saved = 6
        /\ trained = Once(Before7) /\ dropped = {} /\ failures = 0 /\ crashes = 0

\* One rollout at a time is enough for the story.
InTurn ==
    /\ Cardinality(Running) <= 1
    /\ \A p \in Running, q \in Unlaunched : Earlier(p, q)

\* What the user sees in the end: a batch is dropped without a word and never trains.
NoBatchDropped == Cardinality(dropped) < Size
=============================================================================
