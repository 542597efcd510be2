// Moments of random sequences by Bartlett's decomposition, at a cost that does not depend on n.
//
// X = Q R with R upper triangular has S = X'X = A A', A = R', A_ii^2 ~ chi2(n - i), A_ij ~ N(0, 1);
// with t = Q'y = A'w + sigma z:  X'y = A t  and  y'y = |t|^2 + sigma^2 chi2(n - d). For n < d, A is d x n.
#pragma once
#include "block.hpp"
#include "threefry.hpp"

namespace ridgeformer {
namespace {

// Standard normals of the sequences in the lanes, one after the other, four a call of the generator.
struct Normals {
    const Key &key;
    const Words sequence;
    const Use use;
    std::uint32_t slot = 0;
    int left = 0;
    V four[4] = {};

    V next() {
        if (left == 0) draw_four();
        return four[--left];
    }

  private:
    RF_SHARED void draw_four() {
        Words r[4];
        random_words(key, sequence, Words{} + slot++, use, 0, r);
        normals(r[0], r[1], four[3], four[2]);
        normals(r[2], r[3], four[1], four[0]);
        left = 4;
    }
};

// exp(x), by halving x until a short series is exact to rounding, and squaring back.
RF_INLINE V exponential(V x) {
    x = x * T(1.0 / 256);
    V sum = splat(T(1));
    for (int k = 8; k > 0; --k) sum = T(1) + sum * x / T(k);
    for (int i = 0; i < 8; ++i) sum = sum * sum;
    return sum;
}

struct Sampler {
    const Law<T> &law;
    Watch &watch;
    const Size d, n, m, rank;  // n: the largest; m = min(tokens that count, d): the columns of A
    const bool dense, ones;    // whether A, once it has the covariance of the features, has entries above its diagonal
    V *A, *N, *g, *w, *z, *t, *u;
    V *H;    // F'A, [rank][m]
    V *cov;  // of the features, packed
    V *loadings;  // of a factor model, [d][factors]
    V *chis, *retries;
    T *const chi;               // chis, [d + 3][kBlock]
    std::int32_t *const retry;  // retries: cells of chi that are still to be drawn

    // See Diag::lay_out.
    template <class Take>
    static void lay_out(const Law<T> &law, Take &&take) {
        const Size d = law.dim, draws = (d + 3) * kBlock, vector = sizeof(V);
        take(&Sampler::A, d * d);
        take(&Sampler::N, d * d);
        take(&Sampler::g, d);
        take(&Sampler::w, d);
        take(&Sampler::z, d);
        take(&Sampler::t, d);
        take(&Sampler::u, d);
        take(&Sampler::H, law.task_factor ? d * d : 0);
        take(&Sampler::cov, law.own_metric || law.covariance == Covariance::factors ? d * (d + 1) / 2 : 0);
        take(&Sampler::loadings, d * law.factors);
        take(&Sampler::chis, draws * Size(sizeof(T)) / vector);  // kBlock is a multiple of a vector's lanes
        take(&Sampler::retries, (draws * Size(sizeof(std::int32_t)) + vector - 1) / vector);
    }
    static std::size_t vectors(const Law<T> &law) { return count_vectors<Sampler>(law); }

    Sampler(V *memory, const Law<T> &law_, bool ones_, Watch &watch_)
        : law(law_), watch(watch_), d(law_.dim), n(law_.context), m(counted(n) < d ? counted(n) : d), rank(law_.rank),
          dense(law_.covariance == Covariance::rotated), ones(ones_),
          chi((lay_out(law, placing(*this, memory)), reinterpret_cast<T *>(chis))),
          retry(reinterpret_cast<std::int32_t *>(retries)) {}

    Counter counter(Size depth) const { return {watch, depth}; }

    // Directions that n tokens can span: centring them costs one.
    Size counted(Size tokens) const { return tokens - law.standardised; }
    // Columns of A in row i that may differ from zero.
    Size width(Size i) const { return dense || i >= m ? m : i + 1; }

    // Degrees of freedom of the chi2 numbers, by slot: the diagonal of A; what is left of the noise beyond the span of the
    // features; and for the sums of tokens twice more.
    Size freedom(Size slot, Size tokens) const {
        const Size span = counted(tokens) < d ? counted(tokens) : d, rest = tokens - span;
        return slot < d ? counted(tokens) - slot : slot < d + 2 ? rest : rest - 1;
    }

    static Words lanes(std::uint32_t first) {
        Words sequence;
        for (int i = 0; i < kLanes; ++i) sequence[i] = first + std::uint32_t(i);
        return sequence;
    }

    // chi2(freedom) = 2 gamma(freedom / 2) as Marsaglia and Tsang (2000) draw it. Shape 1/2 is below what they
    // allow and comes from shape 3/2 times the square of a uniform.
    struct Gamma {
        V c, slope, single;
        explicit Gamma(V freedom) {
            single = freedom < T(1.5) ? splat(T(1)) : splat(T(0));
            c = freedom * T(0.5) - T(1) / T(3) + single;
            slope = T(1) / (T(3) * square_root(c));
        }
    };

    // One attempt in every lane; returns which lanes succeeded. The test of the paper, x^2/2 + c - c v^3 + c log v^3
    // with v = 1 + e, is written as 3c (log v - e + e^2/2 - e^3/3): its large terms have been cancelled by hand.
    RF_INLINE Bits try_chi(Words sequence, Words slot, const Gamma &gamma, std::uint32_t attempt, V &value) const {
        Words r[4];
        random_words(law.key, sequence, slot, Use::chi, attempt, r);
        V x, unused;
        normals(r[0], r[1], x, unused);
        const V v = T(1) + x * gamma.slope;
        const V e = v - T(1), x2 = x * x, u = uniform(r[2]), boost = uniform(r[3]);
        const auto positive = v > T(0);
        const V log_v = logarithm(positive ? v : splat(T(1)));
        const V bound = T(3) * gamma.c * (log_v - e * (T(1) - e * (T(0.5) - e * (T(1) / T(3)))));
        const auto quick = u < T(1) - T(0.0331) * x2 * x2;
        value = T(2) * gamma.c * v * v * v * (gamma.single > T(0) ? boost * boost : splat(T(1)));
        return positive & (quick | (logarithm(u) < bound));
    }

    // chi[slot][s] of sequence s, with the degrees of freedom that `freedom` tells; 0 where there are none. Failures are
    // collected and tried again together, so that a rejected lane does not hold up the others.
    void draw_chi(std::uint32_t first, const std::int64_t *counts, int count) {
        Size failures = 0;
        const auto tokens = [&](int s) { return counts && s < count ? counts[s] : n; };
        const auto draw_slot = [&](Size slot) {
            const Gamma fixed(splat(T(freedom(slot, n))));
            for (int s = 0; s < kBlock; s += kLanes) {
                V value;
                Gamma gamma = fixed;
                if (counts) {
                    V degrees{};
                    for (int k = 0; k < kLanes; ++k) degrees[k] = T(freedom(slot, tokens(s + k)));
                    gamma = Gamma(degrees > T(0) ? degrees : splat(T(1)));
                }
                const auto good = try_chi(lanes(first + std::uint32_t(s)), Words{} + std::uint32_t(slot), gamma, 0, value);
                store(chi + slot * kBlock + s, value);
                for (int k = 0; k < kLanes; ++k) {
                    if (counts && freedom(slot, tokens(s + k)) <= 0) {
                        chi[slot * kBlock + s + k] = T(0);
                        continue;
                    }
                    retry[failures] = std::int32_t(slot * kBlock + s + k);
                    failures += good[k] == 0;
                }
            }
        };
        for (Size slot = 0; slot < m; ++slot) draw_slot(slot);
        for (Size slot = d; slot < (ones ? d + 3 : d + 1); ++slot) {
            if (freedom(slot, n) > 0) draw_slot(slot);
            else for (int s = 0; s < kBlock; ++s) chi[slot * kBlock + s] = T(0);
        }
        for (std::uint32_t attempt = 1; failures > 0; ++attempt) {
            Size still = 0;
            for (Size from = 0; from < failures; from += kLanes) {
                std::int32_t cell[kLanes];
                Words sequence, slot;
                V degrees{}, value;
                for (int k = 0; k < kLanes; ++k) {
                    cell[k] = retry[from + k < failures ? from + k : from];
                    slot[k] = std::uint32_t(cell[k] / kBlock);
                    sequence[k] = first + std::uint32_t(cell[k] % kBlock);
                    degrees[k] = T(freedom(cell[k] / kBlock, tokens(cell[k] % kBlock)));
                }
                const auto good = try_chi(sequence, slot, Gamma(degrees), attempt, value);
                for (int k = 0; k < kLanes && from + k < failures; ++k) {
                    if (good[k]) chi[cell[k]] = value[k];
                    else retry[still++] = cell[k];
                }
            }
            failures = still;
        }
    }

    // The normals of one group: A below its diagonal row by row, then g, then z. Columns beyond a lane's own number of
    // tokens are zero.
    void draw_normals(Words sequence, V tokens) {
        Normals normal{law.key, sequence, Use::normals};
        for (Size row = 1; row < d; ++row)
            for (Size column = 0; column < (row < m ? row : m); ++column) A[row * d + column] = normal.next();
        for (Size i = 0; i < d; ++i) g[i] = normal.next();
        for (Size i = 0; i < m; ++i) z[i] = normal.next();
        for (Size column = counted(law.shortest); column < m; ++column) {
            const auto there = tokens > T(column + law.standardised);
            z[column] = there ? z[column] : V{};
            for (Size row = column + 1; row < d; ++row) A[row * d + column] = there ? A[row * d + column] : V{};
        }
    }

    // A <- C A for a lower triangle C, from the last row up. C holds vectors or shared scalars; at(i, k) is its index.
    template <class X, class At>
    void multiply(const X *C, const At &at) {
        for (Size i = d; i-- > 0;) {
            if (counter(i).stop(m / 2)) return;
            V *row = A + i * d;
            for (Size j = 0; j < width(i); ++j) row[j] = C[at(i, i)] * row[j];
            for (Size k = 0; k < i; ++k)
                for (Size j = 0; j < width(k); ++j) row[j] += C[at(i, k)] * A[k * d + j];
        }
    }

    // Gives A and cov the covariance that this group's features have.
    void shape_features(Words sequence, V tokens) {
        if (law.covariance == Covariance::fixed && law.factor) multiply(law.factor, [this](Size i, Size k) { return i * d + k; });
        Normals normal{law.key, sequence, Use::features};
        if (law.covariance == Covariance::rotated) rotate(normal);
        if (law.covariance == Covariance::factors) correlate(normal);
        if (law.covariance == Covariance::fixed && law.own_metric)
            for (Size i = 0; i < d; ++i)
                for (Size j = 0; j <= i; ++j) {
                    T sum = T(i == j);
                    if (law.factor) {
                        sum = T(0);
                        for (Size k = 0; k <= j; ++k) sum += law.factor[i * d + k] * law.factor[j * d + k];
                    }
                    cov[packed(i, j)] = splat(sum);
                }
        // Scales with E[scale^2] = 1.
        if (law.spread > T(0)) {
            for (Size i = 0; i < d; ++i) u[i] = exponential(law.spread * normal.next() - law.spread * law.spread);
            scale_features();
        }
        if (!law.standardised) return;
        for (Size i = 0; i < d; ++i) {
            V sum{};
            for (Size k = 0; k < width(i); ++k) sum += A[i * d + k] * A[i * d + k];
            u[i] = square_root(tokens / sum);
        }
        scale_features();
        // A query is centred by its context's mean, whose own covariance is 1/n of the features'.
        const V more = T(1) + T(1) / tokens;
        if (law.own_metric)
            for (Size i = 0; i < packed(d, 0); ++i) cov[i] *= more;
    }

    // Multiplies feature i by u[i].
    void scale_features() {
        for (Size i = 0; i < d; ++i) {
            for (Size k = 0; k < width(i); ++k) A[i * d + k] *= u[i];
            if (law.own_metric)
                for (Size j = 0; j <= i; ++j) cov[packed(i, j)] *= u[i] * u[j];
        }
    }

    // A random basis as a product of Householder reflections (Stewart 1980), applied to diag(roots) A, and from both sides to
    // the spectrum. Signs of the basis do not matter to either.
    void rotate(Normals &normal) {
        for (Size i = 0; i < d; ++i) {
            const T root = law.factor ? law.factor[i] : T(1);
            for (Size j = i + 1; j < m; ++j) A[i * d + j] = V{};
            for (Size j = 0; j < (i < m ? i + 1 : m); ++j) A[i * d + j] *= root;
            if (law.own_metric)
                for (Size j = 0; j <= i; ++j) cov[packed(i, j)] = splat(i == j ? root * root : T(0));
        }
        for (Size k = d - 1; k-- > 0;) {
            if (counter(m + d).stop(2 * (d - k))) return;
            V length{};
            for (Size i = k; i < d; ++i) {
                u[i] = normal.next();
                length += u[i] * u[i];
            }
            const V norm = square_root(length), first = u[k] < T(0) ? u[k] - norm : u[k] + norm;
            const V size = length - u[k] * u[k] + first * first;
            const V beta = T(2) / size;
            u[k] = first;
            for (Size j = 0; j < m; ++j) {
                V sum{};
                for (Size i = k; i < d; ++i) sum += u[i] * A[i * d + j];
                sum *= beta;
                for (Size i = k; i < d; ++i) A[i * d + j] -= u[i] * sum;
            }
            if (law.own_metric) reflect_both(k, beta);
        }
    }

    // cov <- H cov H with H = I - beta u u', in rows and columns from k on; the others of these rows are zero.
    void reflect_both(Size k, V beta) {
        V *p = N, half{};
        for (Size i = k; i < d; ++i) {
            V sum{};
            for (Size j = k; j < d; ++j) sum += cov[i >= j ? packed(i, j) : packed(j, i)] * u[j];
            p[i] = beta * sum;
            half += p[i] * u[i];
        }
        half *= T(0.5) * beta;
        for (Size i = k; i < d; ++i) p[i] -= half * u[i];
        for (Size i = k; i < d; ++i)
            for (Size j = k; j <= i; ++j) cov[packed(i, j)] -= u[i] * p[j] + p[i] * u[j];
    }

    // The correlation matrix of L L' + unique I, where row i of L are the loadings of feature i on the common factors.
    void correlate(Normals &normal) {
        const Size k = law.factors;
        const T scale = T(1) / T(__builtin_sqrt(double(k)));
        for (Size i = 0; i < d; ++i) {
            V sum = splat(law.unique);
            for (Size j = 0; j < k; ++j) {
                loadings[i * k + j] = normal.next() * scale;
                sum += loadings[i * k + j] * loadings[i * k + j];
            }
            const V inverse = T(1) / square_root(sum);
            for (Size j = 0; j < k; ++j) loadings[i * k + j] *= inverse;
            for (Size j = 0; j < i; ++j) cov[packed(i, j)] = dot(loadings + i * k, loadings + j * k, k);
            cov[packed(i, i)] = splat(T(1));
        }
        // Its Cholesky factor.
        for (Size j = 0; j < d; ++j) {
            if (counter(j).stop(d - j)) return;
            V pivot = cov[packed(j, j)];
            for (Size l = 0; l < j; ++l) pivot -= N[j * d + l] * N[j * d + l];
            const V least = splat(sizeof(T) == 4 ? T(1e-7) : T(2e-16));
            const V root = square_root(pivot > least ? pivot : least), inverse = T(1) / root;
            N[j * d + j] = root;
            for (Size i = j + 1; i < d; ++i) {
                V x = cov[packed(i, j)];
                for (Size l = 0; l < j; ++l) x -= N[i * d + l] * N[j * d + l];
                N[i * d + j] = x * inverse;
            }
        }
        multiply(N, [this](Size i, Size l) { return i * d + l; });
    }

    // w = mean + F g, or a task of the pool.
    void make_task(const std::int64_t *choice, int count) {
        for (Size i = 0; i < d; ++i) {
            V x = law.mean ? splat(law.mean[i]) : V{};
            if (law.task_factor)
                for (Size j = 0; j < rank; ++j) x += law.task_factor[i * rank + j] * g[j];
            else x += g[i];
            w[i] = x;
        }
        if (!law.pool) return;
        for (int k = 0; k < kLanes && k < count; ++k)
            if (choice[k] >= 0)
                for (Size i = 0; i < d; ++i) w[i][k] = law.pool[choice[k] * d + i];
    }

    // Cholesky of the lower triangle of N (of the given size), then N x = b in place of b.
    void solve(V *b, Size size) {
        for (Size j = 0; j < size; ++j) {
            if (counter(j).stop(size - j)) return;
            V pivot = N[j * d + j];
            const V least = pivot * (sizeof(T) == 4 ? T(1e-7) : T(2e-16));
            for (Size k = 0; k < j; ++k) pivot -= N[j * d + k] * N[j * d + k];
            pivot = pivot > least ? pivot : least;  // singular to working precision: stay finite
            const V inverse = T(1) / square_root(pivot);
            N[j * d + j] = inverse;
            for (Size i = j + 1; i < size; ++i) {
                V x = N[i * d + j];
                for (Size k = 0; k < j; ++k) x -= N[i * d + k] * N[j * d + k];
                N[i * d + j] = x * inverse;
            }
        }
        for (Size i = 0; i < size; ++i) {
            for (Size k = 0; k < i; ++k) b[i] -= N[i * d + k] * b[k];
            b[i] *= N[i * d + i];
        }
        for (Size i = size; i-- > 0;) {
            for (Size k = i + 1; k < size; ++k) b[i] -= N[k * d + i] * b[k];
            b[i] *= N[i * d + i];
        }
    }

    // E[w | context, sigma] = mean + F E[g | context, sigma]. With H = F'A, and enough tokens for all directions of g, that
    // is g + (H H' + sigma^2)^-1 sigma (H z - sigma g), which is exact at sigma = 0; otherwise it is
    // H (H'H + sigma^2)^-1 (t - A'mean), which needs no inverse of H H'.
    void ridge(const V *S, V sigma, V tokens, V *out) {
        const bool enough = counted(law.shortest) >= rank;
        if (law.task_factor) {
            multiply_tasks();
            if (enough) primal<false>(H, S, sigma, u);
            else dual<false>(H, sigma, tokens, u);
            for (Size i = 0; i < d; ++i) {
                out[i] = V{};
                for (Size j = 0; j < rank; ++j) out[i] += law.task_factor[i * rank + j] * u[j];
            }
        } else if (enough) {
            primal<true>(A, S, sigma, out);
        } else {
            dual<true>(A, sigma, tokens, out);
        }
        if (law.mean)
            for (Size i = 0; i < d; ++i) out[i] += law.mean[i];
    }

    // H = F'A.
    void multiply_tasks() {
        for (Size i = 0; i < rank; ++i) {
            if (counter(d).stop(m)) return;
            for (Size j = 0; j < m; ++j) {
                V sum{};
                for (Size k = dense ? 0 : j; k < d; ++k) sum += law.task_factor[k * rank + i] * A[k * d + j];
                H[i * d + j] = sum;
            }
        }
    }

    // Plain: H is A, and H H' is S.
    template <bool Plain>
    void primal(const V *rows, const V *S, V sigma, V *out) {
        V *b = Plain && !dense ? z : t;  // z and t are no longer needed; a triangle lets the right side take z's place
        for (Size i = rank; i-- > 0;) {
            V Hz{};
            for (Size k = 0; k < (Plain ? width(i) : m); ++k) Hz += rows[i * d + k] * z[k];
            b[i] = sigma * (Hz - rounded(sigma * g[i]));
            for (Size j = 0; j <= i; ++j) N[i * d + j] = Plain ? S[packed(i, j)] : dot(H + i * d, H + j * d, m);
            N[i * d + i] += sigma * sigma;
        }
        solve(b, rank);
        for (Size i = 0; i < rank; ++i) out[i] = g[i] + b[i];
    }

    template <bool Plain>
    void dual(const V *rows, V sigma, V tokens, V *out) {
        V *b = z;
        for (Size i = 0; i < m; ++i) {
            if (counter(d - i).stop(i + 1)) return;
            b[i] = t[i];
            if (law.mean)
                for (Size k = dense ? 0 : i; k < d; ++k) b[i] -= law.mean[k] * A[k * d + i];
            for (Size j = 0; j <= i; ++j) {
                V x{};
                for (Size k = Plain && !dense ? i : 0; k < rank; ++k) x += rows[k * d + i] * rows[k * d + j];
                N[i * d + j] = x;
            }
            N[i * d + i] += sigma * sigma;
            if (i >= counted(law.shortest)) N[i * d + i] += tokens > T(i + law.standardised) ? V{} : splat(T(1));
        }
        solve(b, m);
        for (Size i = 0; i < rank; ++i) {
            V x{};
            for (Size k = 0; k < (Plain ? width(i) : m); ++k) x += rows[i * d + k] * b[k];
            out[i] = x;
        }
    }

    // The further coordinates of tokens: their row of the Gram matrix, whose y stands in row `last`. The sum of all tokens is
    // sqrt(n) times the coordinates of a random unit vector in the basis in which A and t are given.
    void add_coordinates(Words sequence, const Layout &layout, V tokens, V sigma, int group, Size last, V *G) {
        for (Size row = d; row < last; ++row)
            for (Size j = 0; j <= row; ++j) G[packed(row, j)] = V{};
        for (Size row = d; row < last; ++row) G[packed(last, row)] = V{};
        if (!ones) return;
        Normals normal{law.key, sequence, Use::ones};
        const V sign = normal.next();
        V length = chi_of(d + 1, group), along{};
        for (Size k = 0; k < m; ++k) {
            u[k] = normal.next();
            if (law.standardised) u[k] = V{};
            if (k >= counted(law.shortest)) u[k] = tokens > T(k + law.standardised) ? u[k] : V{};
            length += u[k] * u[k];
        }
        const V inverse = T(1) / square_root(length);
        for (Size k = 0; k < m; ++k) {
            u[k] *= inverse;
            along += u[k] * t[k];
        }
        const V beyond = square_root(chi_of(d + 1, group)) * inverse * square_root(chi_of(d, group));
        along += sigma * beyond * sign / square_root(sign * sign + chi_of(d + 2, group));
        const V root = square_root(tokens);
        const V c = layout.coordinate == Coordinate::constant ? splat(T(1)) : square_root(T(kReference) / tokens);
        for (Size i = 0; i < d; ++i) {
            V sum{};
            for (Size k = 0; k < width(i); ++k) sum += A[i * d + k] * u[k];
            G[packed(d, i)] = c * root * sum;
        }
        G[packed(d, d)] = c * c * tokens;
        G[packed(last, d)] = c * root * along;
    }

    V chi_of(Size slot, int group) const { return load(chi + slot * kBlock + group * kLanes); }

    void draw_group(std::uint32_t first, int group, Size offset, const double *sigmas, int count, const Layout &layout,
                    const Block &block) {
        const Size last = block.dim;  // the row of y
        V *G = block.gram(group), *metric = block.metric(group);
        V sigma{}, tokens = splat(T(n));
        for (int k = 0; k < kLanes; ++k) {
            const int s = group * kLanes + k;
            sigma[k] = s < count ? T(sigmas[s]) : T(0);
            if (law.counts && s < count) tokens[k] = T(law.counts[offset + s]);
        }
        const Words sequence = lanes(first + std::uint32_t(group * kLanes));
        draw_normals(sequence, tokens);
        for (Size i = 0; i < m; ++i) A[i * d + i] = square_root(chi_of(i, group));
        shape_features(sequence, tokens);
        make_task(law.choice ? law.choice + offset + group * kLanes : nullptr, count - group * kLanes);
        V squared{};
        for (Size k = 0; k < m; ++k) {
            V x = sigma * z[k];
            for (Size i = dense ? 0 : k; i < d; ++i) x += A[i * d + k] * w[i];
            t[k] = x;
            squared += x * x;
        }
        squared += sigma * sigma * chi_of(d, group);
        for (Size i = 0; i < d; ++i) {
            if (counter(i).stop(i / 2)) return;
            V a{};
            for (Size k = 0; k < width(i); ++k) a += A[i * d + k] * t[k];
            G[packed(last, i)] = a;
            for (Size j = 0; j <= i; ++j) {
                V x{};
                for (Size k = 0; k < width(j); ++k) x += A[i * d + k] * A[j * d + k];
                G[packed(i, j)] = x;
            }
            block.task(group)[i] = w[i];
        }
        G[packed(last, last)] = squared;
        if (last > d) add_coordinates(sequence, layout, tokens, sigma, group, last, G);
        if (!law.pool) ridge(G, sigma, tokens, block.ridge(group));
        else for (Size i = 0; i < d; ++i) block.ridge(group)[i] = w[i];
        for (Size i = d; i < last; ++i) block.task(group)[i] = block.ridge(group)[i] = V{};
        if (layout.mean) {
            const V share = T(1) / tokens;
            for (Size i = 0; i < block.cells; ++i) G[i] *= share;
        }
        if (!metric) return;
        for (Size i = 0; i < last; ++i)
            for (Size j = 0; j <= i; ++j) {
                V &x = metric[packed(i, j)];
                if (i >= d) x = splat(T(i == d && j == d));  // read only if the coordinate is a constant
                else x = law.metric ? splat(law.metric[i * d + j]) : cov[packed(i, j)];
            }
    }
};

void draw(void *scratch, const Law<T> &law, const Layout &layout, std::int64_t first, std::int64_t offset, int count,
          const double *sigma, Watch &watch) {
    const Block block(scratch, law.dim + layout.extra(), law.metric || law.own_metric);
    Sampler sampler(block.end(), law, layout.coordinate != Coordinate::none, watch);
    sampler.draw_chi(std::uint32_t(first), law.counts ? law.counts + offset : nullptr, count);
    for (int group = 0; group * kLanes < count; ++group) {
        if (stopped(watch, 16 * law.dim * law.dim)) return;  // of which the random numbers are most
        sampler.draw_group(std::uint32_t(first), group, offset, sigma, count, layout, block);
    }
    clear_lanes(block, count);
}

}  // namespace
}  // namespace ridgeformer
