/* LD_PRELOAD: notes, in order, what a process does to the files below POWER_CUT_ROOT, itself included.

   Each record is appended to the file POWER_CUT_TRACE by one writev: other processes (the clients,
   with the acks they got) append to the same file, so its order is the order of cause and effect.
   A change is noted under the lock that it was made under. A sync is two records, its begin and
   its end, and is not locked: what was changed before the begin is durable from the end on.
   A process that is to be killed kills itself here, between two records, when POWER_CUT_KILL is
   there: a record torn by a kill would be a hole in the trace. Its children are not traced.
   Not seen: writes through mmap. SQLite makes them to -shm alone, which no power cut leaves. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define FDS 65536

/* Read by trace.py: "<BxxxiiIIqq". */
struct header {
  uint8_t op;
  uint8_t pad[3];
  int32_t pid;
  int32_t fd;
  uint32_t first, second; /* bytes of the two texts that follow */
  int64_t a, b;
} __attribute__((packed));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char traced[FDS];
static const char *root, *end;
static size_t root_length;
static int trace = -1;

__attribute__((constructor)) static void begin(void) {
  const char *file = getenv("POWER_CUT_TRACE");
  root = getenv("POWER_CUT_ROOT");
  end = getenv("POWER_CUT_KILL");
  unsetenv("LD_PRELOAD");
  if (!file || !root || !end) return;
  root_length = strlen(root);
  trace = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static int below(const char *path) {
  return trace >= 0 && !strncmp(path, root, root_length) &&
         (path[root_length] == '/' || !path[root_length]);
}

static int known(int fd) { return trace >= 0 && fd >= 0 && fd < FDS && traced[fd]; }

static void give_up(const char *why) {
  dprintf(2, "tracer: %s\n", why);
  abort();
}

static void locked(void) {
  pthread_mutex_lock(&lock);
  if (!syscall(SYS_faccessat, AT_FDCWD, end, F_OK)) kill(getpid(), SIGKILL);
}

static void note(char op, int fd, int64_t a, int64_t b, const void *one, size_t first,
                 const void *two, size_t second) {
  struct header head = {op, {0}, getpid(), fd, first, second, a, b};
  struct iovec parts[3] = {{&head, sizeof head}, {(void *)one, first}, {(void *)two, second}};
  ssize_t whole = sizeof head + first + second;
  if (syscall(SYS_writev, trace, parts, 3) != whole) give_up("the trace cannot be written");
}

static int opened(const char *path, int flags, mode_t mode) {
  if (!below(path)) return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
  locked();
  int there = !syscall(SYS_faccessat, AT_FDCWD, path, F_OK);
  int fd = syscall(SYS_openat, AT_FDCWD, path, flags, mode);
  if (fd >= 0) {
    if (fd >= FDS) give_up("too many descriptors");
    traced[fd] = 1;
    note('o', fd, flags & O_TRUNC, !there, path, strlen(path), "", 0);
  }
  int problem = errno;
  pthread_mutex_unlock(&lock);
  errno = problem;
  return fd;
}

#define OPEN(name)                                     \
  int name(const char *path, int flags, ...) {         \
    va_list rest;                                      \
    va_start(rest, flags);                             \
    mode_t mode = va_arg(rest, mode_t);                \
    va_end(rest);                                      \
    return opened(path, flags, mode);                  \
  }
OPEN(open)
OPEN(open64)
int __open_2(const char *path, int flags) { return opened(path, flags, 0); }
int __open64_2(const char *path, int flags) { return opened(path, flags, 0); }

int close(int fd) {
  if (known(fd)) {
    locked();
    traced[fd] = 0;
    note('c', fd, 0, 0, "", 0, "", 0);
    pthread_mutex_unlock(&lock);
  }
  return syscall(SYS_close, fd);
}

static ssize_t wrote(int fd, const void *data, size_t size, off64_t at, int here) {
  if (!known(fd))
    return here ? syscall(SYS_write, fd, data, size) : syscall(SYS_pwrite64, fd, data, size, at);
  locked();
  ssize_t done =
      here ? syscall(SYS_write, fd, data, size) : syscall(SYS_pwrite64, fd, data, size, at);
  int problem = errno;
  if (done > 0) {
    int64_t offset = here ? syscall(SYS_lseek, fd, 0, SEEK_CUR) - done : at;
    note('w', fd, offset, 0, data, done, "", 0);
  }
  pthread_mutex_unlock(&lock);
  errno = problem;
  return done;
}
ssize_t write(int fd, const void *data, size_t size) { return wrote(fd, data, size, 0, 1); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return wrote(fd, data, size, at, 0); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { return wrote(fd, data, size, at, 0); }
ssize_t writev(int fd, const struct iovec *parts, int count) {
  if (known(fd)) give_up("writev is not traced");
  return syscall(SYS_writev, fd, parts, count);
}

static long changed(long done, char op, int fd, int64_t a, int64_t b, const char *one,
                    const char *two) {
  int problem = errno;
  if (!done) note(op, fd, a, b, one, strlen(one), two, strlen(two));
  pthread_mutex_unlock(&lock);
  errno = problem;
  return done;
}

int ftruncate64(int fd, off64_t size) {
  if (!known(fd)) return syscall(SYS_ftruncate, fd, size);
  locked();
  return changed(syscall(SYS_ftruncate, fd, size), 't', fd, size, 0, "", "");
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int fallocate64(int fd, int mode, off64_t at, off64_t size) {
  if (!known(fd)) return syscall(SYS_fallocate, fd, mode, at, size);
  if (mode) give_up("fallocate with a mode is not traced");
  locked();
  return changed(syscall(SYS_fallocate, fd, mode, at, size), 'a', fd, at + size, 0, "", "");
}
int fallocate(int fd, int mode, off_t at, off_t size) { return fallocate64(fd, mode, at, size); }
int posix_fallocate64(int fd, off64_t at, off64_t size) {
  return fallocate64(fd, 0, at, size) ? errno : 0;
}
int posix_fallocate(int fd, off_t at, off_t size) { return posix_fallocate64(fd, at, size); }

static int synced(int fd, long number) {
  int mine = known(fd);
  if (mine) {
    locked();
    note('s', fd, 0, 0, "", 0, "", 0);
    pthread_mutex_unlock(&lock);
  }
  int done = syscall(number, fd);
  int problem = errno;
  if (mine && !done) {
    locked();
    note('S', fd, 0, 0, "", 0, "", 0);
    pthread_mutex_unlock(&lock);
  }
  errno = problem;
  return done;
}
int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

int rename(const char *from, const char *to) {
  if (!below(from) && !below(to)) return syscall(SYS_rename, from, to);
  locked();
  return changed(syscall(SYS_rename, from, to), 'r', -1, 0, 0, from, to);
}
int link(const char *from, const char *to) {
  if (!below(from) && !below(to)) return syscall(SYS_link, from, to);
  locked();
  return changed(syscall(SYS_link, from, to), 'l', -1, 0, 0, from, to);
}
int unlink(const char *path) {
  if (!below(path)) return syscall(SYS_unlink, path);
  locked();
  return changed(syscall(SYS_unlink, path), 'u', -1, 0, 0, path, "");
}
int mkdir(const char *path, mode_t mode) {
  if (!below(path)) return syscall(SYS_mkdir, path, mode);
  locked();
  return changed(syscall(SYS_mkdir, path, mode), 'm', -1, 0, 0, path, "");
}
int rmdir(const char *path) {
  if (!below(path)) return syscall(SYS_rmdir, path);
  locked();
  return changed(syscall(SYS_rmdir, path), 'd', -1, 0, 0, path, "");
}
