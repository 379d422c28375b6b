/* Notes how much of each file a disk has: a file in the folder that LEASEHOLD_DISK names, called after the inode, has the
   length at the last fsync, in binary. Loaded before the C library (LD_PRELOAD), it changes nothing else. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int note(int file, long how) {
  const char *folder = getenv("LEASEHOLD_DISK");
  struct stat before;
  int is_file = folder && !fstat(file, &before) && S_ISREG(before.st_mode);
  int failed = (int)syscall(how, file);
  if (failed || !is_file) return failed;
  char path[4096];
  snprintf(path, sizeof path, "%s/%llu", folder, (unsigned long long)before.st_ino);
  int notes = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (notes >= 0) {
    int64_t length = before.st_size;
    if (pwrite(notes, &length, sizeof length, 0) != sizeof length) abort();
    close(notes);
  }
  return 0;
}

int fsync(int file) { return note(file, SYS_fsync); }

int fdatasync(int file) { return note(file, SYS_fdatasync); }
