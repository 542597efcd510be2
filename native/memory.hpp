// Scratch memory that outlives a call: giving a megabyte back to the system and faulting it in again would cost a
// tenth of a training step.
#pragma once
#include <cstddef>
#include <mutex>
#include <new>
#include <vector>

namespace ridgeformer {

// Memory aligned to 64 bytes, from the shelf if something fits there, and back to it in the end.
class Scratch {
  public:
    explicit Scratch(std::size_t bytes) : piece_(take(bytes)) {}
    ~Scratch() { put(piece_); }
    Scratch(Scratch &&other) noexcept : piece_(other.piece_) { other.piece_ = {}; }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;
    void *get() const { return piece_.start; }

  private:
    struct Piece {
        void *start = nullptr;
        std::size_t bytes = 0;
    };

    // Never destroyed, so that no thread can outlive it.
    struct Shelf {
        std::mutex mutex;
        std::vector<Piece> pieces;
        std::size_t bytes = 0;
    };
    static Shelf &shelf() {
        static Shelf *const shared = new Shelf;
        return *shared;
    }
#if defined(__SANITIZE_ADDRESS__)
    static constexpr std::size_t kMost = 0;  // every piece of its exact size, so that overruns are seen
#else
    static constexpr std::size_t kMost = std::size_t(64) << 20;  // bytes kept
#endif

    static Piece take(std::size_t bytes) {
        Shelf &shared = shelf();
        {
            std::lock_guard<std::mutex> lock(shared.mutex);
            for (std::size_t i = shared.pieces.size(); i-- > 0;) {
                const Piece piece = shared.pieces[i];
                if (piece.bytes < bytes) continue;
                shared.pieces.erase(shared.pieces.begin() + std::ptrdiff_t(i));
                shared.bytes -= piece.bytes;
                return piece;
            }
        }
        return {::operator new(bytes, std::align_val_t(64)), bytes};
    }

    static void put(Piece piece) {
        if (!piece.start) return;
        Shelf &shared = shelf();
        {
            std::lock_guard<std::mutex> lock(shared.mutex);
            if (shared.bytes + piece.bytes <= kMost && shared.pieces.size() < 64) {
                shared.pieces.push_back(piece);
                shared.bytes += piece.bytes;
                return;
            }
        }
        ::operator delete(piece.start, std::align_val_t(64));
    }

    Piece piece_;
};

}  // namespace ridgeformer
