# Threads of the simulated environment: one runs at a time, and at each call to the system or a file the seed says which.
#
# Each is a thread of the real system that waits until it is given its turn, so a seed is the same history every time. The
# engine lock is no part of `System`: who has it when its turn ends is asked of the lock, and until it goes on only the
# commit thread may run, which never takes it.

cdef extern from * nogil:
    """
    #include <pthread.h>
    #include <semaphore.h>
    """
    ctypedef struct sem_t:
        pass
    int sem_init(sem_t* s, int shared, unsigned int n)
    int sem_wait(sem_t* s)
    int sem_post(sem_t* s)
    int sem_destroy(sem_t* s)
    int pthread_create(Thread* t, void* attributes, void* (*main)(void* arg) noexcept nogil, void* arg)
    int pthread_join(Thread t, void** result)
    int pthread_mutex_trylock(Mutex* m)

cdef extern from "Python.h" nogil:
    ctypedef struct PyThreadState:
        pass
    int PyGILState_Check()
    PyThreadState* PyEval_SaveThread()
    void PyEval_RestoreThread(PyThreadState* t)

cdef struct Disk

cdef enum:
    TURNS = 8
    DRIVER = 0                  # the thread of the test
    COMMITS = 1                 # the commit thread, the first that is started

cdef enum Doing:
    RUNS = 0                    # or would, if it were its turn
    WANTS = 1                   # a mutex
    WAITS = 2                   # for a condition, then its mutex
    JOINS = 3
    RESTS = 4                   # until nobody else has anything to do
    OVER = 5

cdef struct Turn:
    Disk* d
    Doing doing
    Mutex* mutex
    Mutex* owned                # there is one that is held over calls
    Cond* cond
    int64_t deadline
    int joins
    sem_t mine                  # posted when it is its turn
    Thread thread
    void* (*main)(void* arg) noexcept nogil
    void* arg


cdef bint is_free(const Disk* d, const Mutex* m) noexcept nogil:
    cdef int i
    for i in range(d.n_turns):
        if m != NULL and d.turns[i].owned == m:
            return False
    return True


cdef bint may_go_on(const Disk* d, int i) noexcept nogil:
    cdef const Turn* t = &d.turns[i]
    if d.holder >= 0 and i != d.holder and i != COMMITS:
        return False
    if t.doing == WANTS:
        return is_free(d, t.mutex)
    if t.doing == WAITS:
        return t.deadline <= d.env.mono and is_free(d, t.mutex)
    if t.doing == JOINS:
        return d.turns[t.joins].doing == OVER
    return t.doing == RUNS


cdef int next_turn(Disk* d) noexcept nogil:
    # Whose turn it is. Where everybody waits, time passes.
    cdef int may[TURNS]
    cdef int i, n
    cdef int64_t due
    i = <int>below(d, <uint64_t>d.n_turns)
    if d.turns[i].doing == WAITS and below(d, 100) == 0:
        d.turns[i].deadline = 0         # woken for nothing
    while True:
        n = 0
        due = INT64_MAX
        for i in range(d.n_turns):
            if may_go_on(d, i):
                may[n] = i
                n += 1
            elif d.turns[i].doing == WAITS:
                due = min(due, d.turns[i].deadline)
        if n:
            return may[below(d, <uint64_t>n)]
        for i in range(d.n_turns):
            if d.turns[i].doing == RESTS:
                return i
        if due == INT64_MAX or due <= d.env.mono:
            for i in range(d.n_turns):
                fprintf(stderr, "thread %d: doing %d, mutex %p, owned %p, cond %p\n", i, <int>d.turns[i].doing,
                        <void*>d.turns[i].mutex, <void*>d.turns[i].owned, <void*>d.turns[i].cond)
            fprintf(stderr, "holder %d\n", d.holder)
            fatal("every thread waits for another")
        d.env.now += due - d.env.mono
        d.env.mono = due


cdef void turn_begins(Disk* d, int me) noexcept nogil:
    cdef Turn* t = &d.turns[me]
    if d.holder == me:
        d.holder = -1
    if t.doing == WANTS or t.doing == WAITS:
        t.owned = t.mutex
    t.doing = RUNS


cdef void turn_ends(Disk* d) noexcept nogil:
    # The thread whose turn is next goes on; back when it is this thread's again.
    cdef int me = d.turn, to
    cdef PyThreadState* python = NULL
    if d.holder < 0 and me != COMMITS:
        if pthread_mutex_trylock(&d.env.lock.held) == 0:
            pthread_mutex_unlock(&d.env.lock.held)
        else:
            d.holder = me
    to = next_turn(d)
    if to != me:
        if PyGILState_Check():
            python = PyEval_SaveThread()
        d.turn = to
        sem_post(&d.turns[to].mine)
        turn_awaited(&d.turns[me])
        if python != NULL:
            PyEval_RestoreThread(python)
    turn_begins(d, me)


cdef void turn_awaited(Turn* t) noexcept nogil:
    while sem_wait(&t.mine) != 0:
        pass                    # a signal


cdef void turn_point(Disk* d) noexcept nogil:
    # Here another thread may go on.
    if d.n_turns and not d.calm and below(d, d.pace) == 0:
        turn_ends(d)


cdef void* turn_main(void* arg) noexcept nogil:
    cdef Turn* t = <Turn*>arg
    cdef Disk* d = t.d
    turn_awaited(t)
    turn_begins(d, d.turn)
    t.main(t.arg)
    t.doing = OVER
    d.turn = next_turn(d)
    sem_post(&d.turns[d.turn].mine)
    return NULL


cdef void turns_begin(Disk* d) noexcept nogil:
    # The calling thread is the first, and it is its turn.
    d.n_turns = 1
    d.turn = DRIVER
    d.holder = -1
    d.pace = 1 << below(d, 8)
    turn_new(d, DRIVER)


cdef void turn_new(Disk* d, int i) noexcept nogil:
    memset(&d.turns[i], 0, sizeof(Turn))
    d.turns[i].d = d
    if sem_init(&d.turns[i].mine, 0, 0) != 0:
        fatal("no semaphore")


cdef void turns_end(Disk* d) noexcept nogil:
    cdef int i
    for i in range(d.n_turns):
        sem_destroy(&d.turns[i].mine)
    d.n_turns = 0


# ---- what the system's table has of threads ------------------------------------------------------------------------

cdef int sim_start(void* ctx, Thread* t, void* (*main)(void* arg) noexcept nogil, void* arg) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef int i = d.n_turns
    if i == 0:
        return EAGAIN           # one thread only
    if i == TURNS:
        fatal("too many threads")
    turn_new(d, i)
    d.turns[i].main = main
    d.turns[i].arg = arg
    t[0] = <Thread>i
    if pthread_create(&d.turns[i].thread, NULL, turn_main, &d.turns[i]) != 0:
        fatal("no thread")
    d.n_turns += 1
    turn_point(d)
    return 0


cdef void sim_join(void* ctx, Thread t) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    if d.n_turns == 0:
        fatal("there is one thread only")
    d.turns[d.turn].doing = JOINS
    d.turns[d.turn].joins = <int>t
    turn_ends(d)
    pthread_join(d.turns[<int>t].thread, NULL)


cdef void sim_lock(void* ctx, Mutex* m) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef Turn* t
    if d.n_turns == 0:
        return
    turn_point(d)
    t = &d.turns[d.turn]
    t.mutex = m
    if is_free(d, m):
        t.owned = m
    else:
        t.doing = WANTS
        turn_ends(d)


cdef void sim_unlock(void* ctx, Mutex* m) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    if d.n_turns == 0:
        return
    d.turns[d.turn].owned = NULL
    turn_point(d)


cdef void sim_wait(void* ctx, Cond* c, Mutex* m, int64_t deadline) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef Turn* t
    if d.n_turns == 0:
        fatal("the only thread waits for another")
    if m == &d.env.lock.held:
        fatal("somebody waits who has the engine lock")
    t = &d.turns[d.turn]
    t.doing = WAITS
    t.owned = NULL
    t.cond = c
    t.mutex = m
    t.deadline = deadline
    turn_ends(d)


cdef void sim_broadcast(void* ctx, Cond* c) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef int i
    for i in range(d.n_turns):
        if d.turns[i].doing == WAITS and d.turns[i].cond == c:
            d.turns[i].doing = WANTS


cdef void sim_signal(void* ctx, Cond* c) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    cdef int i, k, first = <int>below(d, <uint64_t>d.n_turns)
    for k in range(d.n_turns):
        i = (first + k) % d.n_turns
        if d.turns[i].doing == WAITS and d.turns[i].cond == c:
            d.turns[i].doing = WANTS
            return


cdef void sim_notify(void* ctx, int eventfd) noexcept nogil:
    cdef Disk* d = <Disk*>ctx
    d.rung = True
    sim_broadcast(d, &d.bell)


# ---- threads of our own: what a reactor and the server do ------------------------------------------------------------

cdef void* commit_main(void* arg) noexcept nogil:
    committer_run(<Committer*>arg)
    return NULL


cdef void engine_turn(Disk* d) noexcept nogil:
    # What finished groups lead to.
    env_lock(d.env)
    committer_poll(d.committer)
    task_run(&d.env.tasks, 100000)
    env_unlock(d.env)


cdef void* reactor_main(void* arg) noexcept nogil:
    cdef Disk* d = <Disk*>arg
    while not d.leaving:
        if not d.rung:
            sim_wait(d, &d.bell, NULL, INT64_MAX)
            continue
        d.rung = False
        engine_turn(d)
        turn_point(d)
    return NULL


cdef void rest(Disk* d) noexcept nogil:
    # Until the others have done all that is due by now.
    cdef int i
    for i in range(2):
        d.turns[d.turn].doing = RESTS
        turn_ends(d)
        engine_turn(d)
