// Compiled by the session with Spark's own compiler (see scans_apart.py). Raw types: Janino
// knows no inference.
package horolog.spark;

import java.lang.reflect.Field;
import java.util.EnumSet;
import java.util.Set;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/** Takes a DataFrame of a Python source, and gives one whose scans share nothing. */
public class LogScans {

  /** The Python source of a DataFrame, pickled as its `load()` has left it. */
  public byte[] source(Dataset frame) throws Exception {
    DataSourceV2Relation relation = relation(frame);
    return created(shared(relation), relation).dataSource();
  }

  /** The same DataFrame, of this pickled source, each scan of which is planned by itself. */
  public Dataset apart(Dataset frame, byte[] source) throws Exception {
    DataSourceV2Relation relation = relation(frame);
    PythonDataSourceV2 shared = shared(relation);
    StructType columns = created(shared, relation).schema();
    SupportsRead table = new ApartTable(
        relation.table().name(),
        relation.table().schema(),
        shared.source(),
        new PythonDataSourceCreationResult(source, columns));
    return Dataset.ofRows(
        (org.apache.spark.sql.classic.SparkSession) frame.sparkSession(),
        DataSourceV2Relation.create(table, Option.empty(), Option.empty()));
  }

  private static DataSourceV2Relation relation(Dataset frame) {
    return (DataSourceV2Relation) frame.queryExecution().analyzed();
  }

  private static PythonDataSourceV2 shared(DataSourceV2Relation relation) throws Exception {
    Field field = PythonTable.class.getDeclaredField("ds");
    field.setAccessible(true);
    return (PythonDataSourceV2) field.get((PythonTable) relation.table());
  }

  private static PythonDataSourceCreationResult created(
      PythonDataSourceV2 shared, DataSourceV2Relation relation) {
    return shared.getOrCreateDataSourceInPython(
        relation.table().name(), relation.options(), Option.apply(relation.table().schema()));
  }
}

/** A table that gives every scan builder a provider of its own, and so a plan of its own. */
class ApartTable implements SupportsRead {
  private final String format;
  private final StructType columns;
  private final UserDefinedPythonDataSource python;
  private final PythonDataSourceCreationResult created;

  ApartTable(
      String format,
      StructType columns,
      UserDefinedPythonDataSource python,
      PythonDataSourceCreationResult created) {
    this.format = format;
    this.columns = columns;
    this.python = python;
    this.created = created;
  }

  public String name() {
    return format;
  }

  public StructType schema() {
    return columns;
  }

  public Set capabilities() {
    return EnumSet.of(TableCapability.BATCH_READ);
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    PythonDataSourceV2 provider = new OneScan(python, created);
    provider.setShortName(format);
    return new PythonTable(provider, format, columns).newScanBuilder(options);
  }
}

/** The provider of one scan; the source itself was made by `load()`. */
class OneScan extends PythonDataSourceV2 {
  private final UserDefinedPythonDataSource python;
  private final PythonDataSourceCreationResult created;

  OneScan(UserDefinedPythonDataSource python, PythonDataSourceCreationResult created) {
    this.python = python;
    this.created = created;
  }

  public UserDefinedPythonDataSource source() {
    return python;
  }

  public PythonDataSourceCreationResult getOrCreateDataSourceInPython(
      String format, CaseInsensitiveStringMap options, Option schema) {
    return created;
  }
}
