/* Loaded before the C library: adds to the wall clock what a file says, so that it steps while a process runs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

/* Nanoseconds by which the clock is ahead. */
static volatile const long long *ahead;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("WEIR_CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *map = file >= 0 ? mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
    if (map != MAP_FAILED)
        ahead = map;
    if (file >= 0)
        close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    if (result == 0 && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long now = time->tv_sec * SECOND + time->tv_nsec + *ahead;
        time->tv_sec = now / SECOND;
        time->tv_nsec = now % SECOND;
    }
    return result;
}

int gettimeofday(struct timeval *time, void *zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to)
        *to = now.tv_sec;
    return now.tv_sec;
}
