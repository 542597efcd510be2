// Threads that stay: a training step lasts less than a millisecond, and starting a thread a twentieth of that.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define RF_HAS_FORK 1
#endif

namespace ridgeformer {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    std::this_thread::yield();
#endif
}

// Helper threads wait for work, awake for a moment and then asleep. One caller at a time has them; another that
// comes meanwhile (the interpreter lock is released) works alone, and so does one that a signal handler of the first
// makes. Never destroyed: the threads end with the process.
class Pool {
  public:
    static Pool &shared() {
        static std::once_flag once;
        std::call_once(once, [] {
            current().store(new Pool);
#if defined(RF_HAS_FORK)
            // A forked child has this memory but not the threads: it starts over.
            pthread_atfork(nullptr, nullptr, [] { current().store(new Pool); });
#endif
        });
        return *current().load();
    }

    // work() on this thread and on up to `helpers` others, which all have returned when this does. While this thread
    // waits for them it calls idle(). Neither may throw.
    void run(int helpers, const std::function<void()> &work, const std::function<void()> &idle) {
        if (helpers <= 0 || taken_.exchange(true, std::memory_order_acquire)) return work();
        grow(helpers);
        const int used = helpers < size_ ? helpers : size_;
        work_ = &work;
        pending_.store(used, std::memory_order_relaxed);
        {
            std::lock_guard<std::mutex> lock(mutex_);
            const std::uint64_t round = (ticket_.load(std::memory_order_relaxed) >> 16) + 1;
            ticket_.store(round << 16 | std::uint64_t(used), std::memory_order_release);
        }
        wake_.notify_all();
        work();
        for (int spins = 0; pending_.load(std::memory_order_acquire) > 0; ++spins) {
            if (spins < 1000) {
                relax();
            } else {
                std::this_thread::yield();
                idle();
            }
        }
        taken_.store(false, std::memory_order_release);
    }

  private:
    static std::atomic<Pool *> &current() {
        static std::atomic<Pool *> pool{nullptr};
        return pool;
    }

    void grow(int helpers) {
        try {
            for (; size_ < helpers; ++size_)
                std::thread(&Pool::loop, this, size_ + 1, ticket_.load(std::memory_order_relaxed)).detach();
        } catch (const std::system_error &) {
            // The system gives no more threads: those that there are do the work.
        }
    }

    // Helper number `index` takes part in a round if the ticket asks for that many. It may miss rounds that do not.
    void loop(int index, std::uint64_t seen) {
        using Clock = std::chrono::steady_clock;
        for (;;) {
            const auto patience = Clock::now() + std::chrono::microseconds(100);
            while (ticket_.load(std::memory_order_acquire) == seen && Clock::now() < patience)
                for (int i = 0; i < 32; ++i) relax();
            if (ticket_.load(std::memory_order_acquire) == seen) {
                std::unique_lock<std::mutex> lock(mutex_);
                wake_.wait(lock, [&] { return ticket_.load(std::memory_order_acquire) != seen; });
            }
            seen = ticket_.load(std::memory_order_acquire);
            if (index > int(seen & 0xffff)) continue;
            (*work_)();
            pending_.fetch_sub(1, std::memory_order_release);
        }
    }

    std::atomic<bool> taken_{false};
    std::mutex mutex_;
    std::condition_variable wake_;
    std::atomic<std::uint64_t> ticket_{0};  // round number, and in the low 16 bits how many helpers it wants
    std::atomic<int> pending_{0};
    const std::function<void()> *work_ = nullptr;
    int size_ = 0;
};

}  // namespace ridgeformer
