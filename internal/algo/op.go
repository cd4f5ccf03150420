package algo

// The constants of the rules, in µs. docs/lab has measurements of their effect, made by the lab in bench/accuracy.
const (
	// Generation is the length of the shortest generation of the ledger.
	Generation = 1_000_000
	// MaxLease is the longest life of a lease of a bucket: see Bucket.Life.
	MaxLease = 4 * Generation
	// WindowLease is the longest time whose demand a lease of a window covers. The lease lives as long as its window;
	// until then, other processes cannot use units that its process no longer needs.
	WindowLease = 5 * Generation
	// MinLease is the shortest useful life of a lease: a process takes two ticks of up to 5 ms off its deadline.
	MinLease = 20_000
	// ClockSlack is the largest step back of Redis's clock that freezes the refill; a larger step moves the state with
	// the clock.
	ClockSlack = 1_000_000
	// MaxTicket bounds the time until a next poll. Processes poll earlier.
	MaxTicket = 60_000_000
)

// State is the state of a key in Redis, of every kind except a sliding log.
type State struct {
	Kind Kind // of the limit that wrote it; a limit of another kind starts anew

	Born  int64 // µs of Redis time at creation; 0: there is no state
	Since int64 // units debited since Born or Reset, less units given back; at most 2⁵³
	Reset int64 // µs of Redis time of the last Reset; 0: none. Views up to it are void

	// For a bucket or a queue:

	Unit   int64 // sub-units per unit when the state was written
	Refill int64 // sub-units per µs when the state was written
	Level  int64 // sub-units left, negative in debt, down to -Cap; of a queue less Cap, so minus its content
	Last   int64 // µs of Redis time for which Level holds
	Slot   int64 // µs of Redis time of the next poll that is free; 0: now
	Ahead  int64 // µs of Redis time of the last booking that lies ahead; 0: none
	Keep   int64 // µs of Redis time until which the state is kept, although the bucket is full before; 0: no longer than that

	// Out is the ledger: leased units, which lower the level to which the bucket refills. Out[0] is for the generation
	// of Last, Out[1] for the one before.
	Out  [2]int64
	Span int64 // log₂ of the seconds of a generation; 0 while the ledger is empty

	// For a window:

	Period int64 // µs of a window when the state was written
	Win    int64 // number of the current window: see Window.Begin
	Cur    int64 // units counted in it; of a fixed window with the carried units
	Prev   int64 // units counted in the one before
	Next   int64 // units leased of the one after, with which it begins
	Debt   int64 // of a fixed window: units of Cur above the limit under which they were counted; the next window begins with them
	Carry  int64 // of a fixed window: units of Cur that were Debt of the window before
	Late   int64 // in the window of Born: units of Since that Cur does not count, because they came late and belong to the window before

	// More is the fields of other versions, as in the state's text.
	More string
}

// View is a state as a process last saw it. The process sends it back, so that Redis can detect and repair a loss. The
// zero View is no view.
type View struct {
	Level int64 // sub-units of the op's limit
	Prev  int64 // of a sliding window: units counted in the window before that of At
	Next  int64 // of a window: units leased of the window after that of At
	At    int64 // µs of Redis time of the answer
	Born  int64 // State.Born in the answer
}

// Op is one exchange for one key: it pays owed units, asks for units, and asks for a lease.
type Op struct {
	Owed    int64   // units already admitted, which are always debited
	Asks    []int64 // units wanted, granted in order as they fit
	Partial bool    // an ask may be granted in part
	Demand  int64   // the process's demand in thousandths of a unit per second
	Div     int64   // twice the fleet size: a lease takes at most 1/Div of the units left; 0: no lease and no next poll
	View    View    // the sender's last; zero: none
	Gen     int64   // generation of the sender's units in the ledger, or the number of the window of Back; 0: none
	Had     int64   // the sender's units in the ledger
	Keep    int64   // units of Had still held by the sender, to be renewed
	Back    int64   // leased units that the sender returns unspent; of a bucket, Keep + Back ≤ Had
	// Ahead makes the lease one of the next window. The asks are of the current one.
	Ahead bool
	// Lost reports that Redis lost writes since View. Then View also corrects a state with the same Born. It must not
	// be set without a reason: during a rollout, the refill of another process's limit makes a level look too high.
	Lost bool
	// Broken reports that View is older than the unbroken chain of the sender's batches in Redis. Such an op settles
	// nothing with the ledger.
	Broken bool

	// Floor is the units that asks and leases leave in the bucket or window, for classes with a smaller floor. Owed is
	// debited all the same. It counts as half of the burst at most. 0 of a log.
	Floor int64
	// Upper reports that another class of the sender's limiter has a larger Floor. Then the op takes no turn: the
	// classes with the largest floor wait for each other.
	Upper bool
	// Queued reports that the sender's last answer gave it a next poll, for which it waited. It has no effect with Upper
	// or without a next poll.
	Queued bool

	// MaxLife is the longest life, in seconds, of a lease that the sender wants: 1 or 2. 0: 4.
	MaxLife int64

	// Used is the number of units of the Burst, or of the Rate of a window, that are used by the count of another party,
	// such as the provider that the fleet calls. The level is lowered to the rest less the ledger, whose units may be
	// used yet. It never rises. Of a window, Used counts up to the Rate. 0: not known, and of a log.
	Used   int64
	UsedBy int64 // µs of Redis time after which Used is too old, and has no effect; 0: never

	Win    int64 // number of the window in which Owed was admitted; 0: the current one
	Refund int64 // units given back
	// RefundAt is the time at which Refund was taken:
	//   - window: its number. 0: unknown; the current window gives back as much as it has counted, and the one before
	//     the rest.
	//   - log: the µs of Redis time of the entry. 0: the oldest entries.
	//   - bucket: the µs from which the units could have been used. Units granted after it stay taken. 0: all come
	//     back.
	//   - queue: the µs at which the first of the units is served. 0: all come back.
	RefundAt int64
	// Since is the µs for which the sender's limit has been in force. 0: longer than a state lives. Before that, the
	// limit that wrote the state refills it.
	Since    int64
	Reset    bool   // before all else, forget the usage and void all views up to now
	MaxDelay int64  // µs by which the only ask may be delayed, in debt down to -Cap (with a Floor, without debt); 0: it is granted now or refused. Excludes a lease and a next poll
	ID       string // of a log: stored with the admission
}

// Asked returns the units that the op asks for.
func (op Op) Asked() (units int64) {
	for _, n := range op.Asks {
		units += n
	}
	return units
}

// used returns Used, or 0 if it is too old.
func (op Op) used(now int64) int64 {
	if op.UsedBy > 0 && now > op.UsedBy {
		return 0
	}
	return op.Used
}

// OnlyAsks reports whether the op only asks for units, to be granted at once or not at all. Applied twice, such an op
// loses units, and no unit is used twice.
func (op *Op) OnlyAsks() bool { return op.View == (View{}) && op.AsksByView() }

// AsksByView is OnlyAsks for an op that may tell a view.
func (op *Op) AsksByView() bool {
	tells := op.Owed != 0 || op.Refund != 0 || op.Used+op.UsedBy != 0 || op.Reset || op.Lost && op.View != (View{})
	leases := op.Demand != 0 || op.Div != 0 || op.Gen != 0 || op.Had != 0 || op.Keep != 0 || op.Back != 0 || op.Ahead
	return len(op.Asks) > 0 && op.MaxDelay == 0 && !tells && !leases
}

// OnlyPays reports whether the op only tells owed units of the present, and may tell a view.
func (op *Op) OnlyPays() bool {
	tells := op.Win != 0 || op.Refund != 0 || op.Used+op.UsedBy != 0 || op.Lost || op.Reset || op.Queued || op.MaxLife != 0
	leases := op.Demand != 0 || op.Gen != 0 || op.Had != 0 || op.Keep != 0 || op.Back != 0 || op.Ahead
	return op.Owed > 0 && len(op.Asks) == 0 && op.MaxDelay == 0 && !tells && !leases
}

// Answer is the answer to an Op.
type Answer struct {
	Granted int64 // units granted to Asks
	Lease   int64 // units leased
	Life    int64 // µs in which the lease may be spent, and also any unused grant, unless Gen is set; 0 of a queue, whose slots follow each other from Delay on
	Level   int64 // sub-units left, negative in debt
	Delay   int64 // µs until the first granted ask may be used; later asks follow by its cost. For a queue's lease without a grant, until its first slot
	Retry   int64 // µs until the first refused ask can succeed (Never above the burst), else until one unit is there; with Div: until the sender's next poll
	Born    int64 // State.Born; 0 if no state was needed
	Cap     int64 // sub-units to which the bucket refills, with the present ledger; of a window: sub-units that the next window has, less its leased ones
	Refill  int64 // of a sliding window: sub-units that come back each µs until Ends; of a calendar window: the number of the state's window; of a bucket: State.Span
	Ends    int64 // of a window: µs until its end, 0 if a calendar window of the sender is not that of Redis's clock; of a log: until it is empty; else 0
	Dropped bool  // Owed was of a window before the last and is not counted
	Refused bool  // Back was not taken back: it came too late, or Redis may have taken it before
	Gen     int64 // not 0: the ledger holds the lease and Keep, in this generation; of a window: the number of the window of the lease, which is the next one
}
