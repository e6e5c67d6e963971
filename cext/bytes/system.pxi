# Threads, clocks and random bytes as the system gives them.

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/random.h>
    #include <time.h>
    #include <unistd.h>

    static int64_t system_clock(int id) {
        struct timespec t;
        clock_gettime(id, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    }
    static void system_cond_init(pthread_cond_t *c) {
        pthread_condattr_t a;
        pthread_condattr_init(&a);
        pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
        pthread_cond_init(c, &a);
        pthread_condattr_destroy(&a);
    }
    static void system_wait(pthread_cond_t *c, pthread_mutex_t *m, int64_t deadline) {
        if (deadline == INT64_MAX) { pthread_cond_wait(c, m); return; }
        struct timespec t = {deadline / 1000000000, deadline % 1000000000};
        pthread_cond_timedwait(c, m, &t);
    }
    static void system_random(void *p, size_t n) {
        uint8_t *to = p;
        while (n > 0) {
            ssize_t got = getrandom(to, n, 0);
            if (got < 0 && errno != EINTR) {
                /* Nothing else is as good, and ids that can be guessed let strangers in. */
                perror("jsserver: the system gives no random bytes");
                abort();
            }
            if (got > 0) { to += got; n -= (size_t)got; }
        }
    }
    """
    int64_t system_clock(int id)
    void system_cond_init(Cond* c)
    void system_wait(Cond* c, Mutex* m, int64_t deadline)
    void system_random(void* p, size_t n)
    int pthread_cond_destroy(Cond* c)
    int pthread_cond_signal(Cond* c)
    int pthread_cond_broadcast(Cond* c)
    int pthread_create(Thread* t, void* attributes, void* (*main)(void* arg) noexcept nogil, void* arg)
    int pthread_join(Thread t, void** result)
    ssize_t c_write "write"(int fd, const void* p, size_t n)
    int CLOCK_MONOTONIC
    int CLOCK_REALTIME


cdef void mutex_init(Mutex* m) noexcept nogil:
    pthread_mutex_init(m, NULL)


cdef void mutex_free(Mutex* m) noexcept nogil:
    pthread_mutex_destroy(m)


cdef void cond_init(Cond* c) noexcept nogil:
    system_cond_init(c)


cdef void cond_free(Cond* c) noexcept nogil:
    pthread_cond_destroy(c)


cdef int64_t posix_clock(void* ctx) noexcept nogil:
    return system_clock(CLOCK_MONOTONIC)


cdef int64_t posix_wall(void* ctx) noexcept nogil:
    return system_clock(CLOCK_REALTIME)


cdef void posix_random(void* ctx, void* p, size_t n) noexcept nogil:
    system_random(p, n)


cdef int posix_start(void* ctx, Thread* t, void* (*main)(void* arg) noexcept nogil, void* arg) noexcept nogil:
    return pthread_create(t, NULL, main, arg)


cdef void posix_join(void* ctx, Thread t) noexcept nogil:
    pthread_join(t, NULL)


cdef void posix_lock(void* ctx, Mutex* m) noexcept nogil:
    pthread_mutex_lock(m)


cdef void posix_unlock(void* ctx, Mutex* m) noexcept nogil:
    pthread_mutex_unlock(m)


cdef void posix_wait(void* ctx, Cond* c, Mutex* m, int64_t deadline) noexcept nogil:
    system_wait(c, m, deadline)


cdef void posix_signal(void* ctx, Cond* c) noexcept nogil:
    pthread_cond_signal(c)


cdef void posix_broadcast(void* ctx, Cond* c) noexcept nogil:
    pthread_cond_broadcast(c)


cdef void posix_notify(void* ctx, int eventfd) noexcept nogil:
    cdef uint64_t one = 1
    c_write(eventfd, &one, 8)


cdef System posix_calls
posix_calls.clock = posix_clock
posix_calls.wall = posix_wall
posix_calls.random = posix_random
posix_calls.start = posix_start
posix_calls.join = posix_join
posix_calls.lock = posix_lock
posix_calls.unlock = posix_unlock
posix_calls.wait = posix_wait
posix_calls.signal = posix_signal
posix_calls.broadcast = posix_broadcast
posix_calls.notify = posix_notify
posix_calls.ctx = NULL


cdef System* posix_system() noexcept nogil:
    return &posix_calls
